// Module: the variables and functions of a PTX file as one device has them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/cuda/ptx/decode.h"
#include "tests/cuda/ptx/machine.h"
#include "tests/cuda/ptx/text.h"

namespace fake_cuda::ptx {

class Module : public Symbols {
 public:
  /// The variables lie one after the other in memory of `variable_bytes`, at `variables`; managed ones apart.
  struct Memory {
    uint64_t variables = 0;
    uint64_t managed = 0;
  };
  static size_t variable_bytes(const ModuleText& text, bool managed);

  Module(std::shared_ptr<const ModuleText> text, Memory memory);
  ~Module() override;

  /// Writes the variables' first values; they must be within reach.
  void initialize();
  /// Decodes the kernel and what it calls. Null: there is none of this name. Throws Unknown.
  const Function* find_kernel(const std::string& name);
  /// Address and bytes; address 0: there is none.
  std::pair<uint64_t, size_t> find_global(const std::string& name) const;

  uint64_t find_variable(const std::string& name) const override;
  const Function* find_function(const std::string& name) override;
  uint32_t find_shared(const std::string& name) const override;
  uint32_t shared_bytes() const override { return shared_bytes_; }

 private:
  uint64_t element_value(const std::string& text, const std::string& type);

  std::shared_ptr<const ModuleText> text_;
  Memory memory_;
  std::map<std::string, std::pair<uint64_t, const Variable*>> variables_;
  std::map<std::string, uint32_t> shared_;
  uint32_t shared_bytes_ = 0;
  std::map<std::string, std::unique_ptr<Function>> functions_;
};

}  // namespace fake_cuda::ptx
