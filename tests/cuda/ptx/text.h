// ModuleText: a PTX file, taken apart into functions, variables and statements. What the statements mean is
// decode.h's business.
//
// Source: NVIDIA, "Parallel Thread Execution ISA", version 9.0, 2025.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace fake_cuda::ptx {

/// PTX that this machine does not know, or that is no PTX: the message names the place and the form.
class Unknown : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A parameter, or a variable in some state space.
struct Variable {
  std::string space;  ///< "param", "global", "const", "shared", "local"
  std::string name;
  std::string type;
  uint32_t alignment = 1;
  size_t bytes = 0;  ///< 0: `extern .shared x[]`
  bool is_external = false;
  bool is_managed = false;
  /// Values of the elements in order, as text; the rest is zero.
  std::vector<std::string> values;
};

struct Statement {
  enum class Kind : uint8_t { kInstruction, kLabel, kOpen, kClose, kDirective };

  Kind kind = Kind::kInstruction;
  int line = 0;
  std::string text;
};

struct FunctionText {
  std::string name;
  bool is_entry = false;
  bool has_body = false;
  std::vector<Variable> results;
  std::vector<Variable> parameters;
  uint32_t most_threads = 1024;  ///< .maxntid
  std::vector<Statement> statements;
};

struct ModuleText {
  std::map<std::string, FunctionText> functions;
  std::vector<Variable> variables;  ///< outside of functions
};

/// Throws Unknown.
ModuleText parse_module(const std::string& ptx);

/// Bytes of an element of a type; throws Unknown.
size_t type_bytes(const std::string& type);
/// A declaration such as `.local .align 16 .b8 name[176]`. Throws Unknown.
Variable parse_variable(const std::string& text);
/// Splits at commas outside of brackets of any kind.
std::vector<std::string> split_operands(const std::string& text);
std::string trimmed(const std::string& text);

}  // namespace fake_cuda::ptx
