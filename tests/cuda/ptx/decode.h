// Decoder: makes a Function of a FunctionText. Each instruction's name leads to a function that reads its
// modifiers and operands; whatever is left over is unknown, and an error that names it.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/ptx/machine.h"
#include "tests/cuda/ptx/text.h"

namespace fake_cuda::ptx {

/// Of `extern .shared x[]`.
inline constexpr uint32_t kDynamic = kNone - 1;

/// Where the variables of a module lie, and its functions.
class Symbols {
 public:
  virtual ~Symbols() = default;
  /// The generic address of a variable outside of functions; 0: there is none.
  virtual uint64_t find_variable(const std::string& name) const = 0;
  /// Decoded when first asked for. Null: there is none with a body.
  virtual const Function* find_function(const std::string& name) = 0;
  /// Offset of a shared variable of the module; kNone: there is none; kDynamic: it begins where the kernel's
  /// own end.
  virtual uint32_t find_shared(const std::string& name) const = 0;
  /// Bytes of those.
  virtual uint32_t shared_bytes() const = 0;
};

class Decoder;
using DecodeFunction = void (*)(Decoder&);
using DecodeTable = std::map<std::string, DecodeFunction>;

// By file of this folder.
/// Arithmetic of one name for all types goes on here, once the type has been taken.
bool is_small_float(const std::string& type);
void decode_small_float(Decoder& decoder, const std::string& type);
void decode_float(Decoder& decoder, const std::string& type);

void add_arithmetic(DecodeTable& table);
void add_floating(DecodeTable& table);
void add_compare(DecodeTable& table);
void add_convert(DecodeTable& table);
void add_memory(DecodeTable& table);
void add_atomics(DecodeTable& table);
void add_warp(DecodeTable& table);
void add_control(DecodeTable& table);

class Decoder {
 public:
  Decoder(const FunctionText& text, Symbols& symbols, Function& into);
  /// Throws Unknown.
  void decode();

  // ---- for DecodeFunctions ----

  /// The modifiers that are left.
  std::vector<std::string> modifiers;
  std::vector<std::string> operands;
  const std::string& name() const { return name_; }

  /// Takes a modifier away; false: it is not there.
  bool take(const std::string& modifier);
  /// The first that is there of `choices`, taken away; empty: none.
  std::string take_one(std::initializer_list<const char*> choices);
  /// The last modifier, which is the type.
  std::string take_type();
  bool has_operand(size_t index) const { return index < operands.size(); }

  /// A register, or a constant as one, of so many bits (1: a predicate).
  uint32_t source(const std::string& operand, uint32_t bits);
  /// Of any width, as it is; constants have `bits`.
  Place source_place(const std::string& operand, uint32_t bits);
  uint32_t target(const std::string& operand, uint32_t bits);
  Place target_place(const std::string& operand, uint32_t bits);
  /// A predicate, which may be negated by `!`.
  uint32_t predicate(const std::string& operand, bool& negated);
  /// A constant that all lanes have.
  uint32_t constant(uint64_t value, uint32_t bits);
  /// A register that no text names.
  uint32_t fresh(uint32_t bits);
  /// The predicate that holds the carries of add.cc and its like.
  uint32_t carry();
  /// Sets base, `a` and offset. `space` empty: generic.
  void address(Instruction& instruction, const std::string& operand, const std::string& space);
  /// The instruction that all operands of an address name is in lane memory: (offset).
  bool local_offset(const std::string& symbol, uint32_t& offset, uint32_t& bytes) const;

  Instruction make(Handler run, Flow flow = Flow::kNext) const;
  Extra* extra();
  void emit(Instruction instruction);
  /// To be set to where the label is.
  void emit_branch(Instruction instruction, const std::string& label);
  const std::vector<std::string>& labels_of(const std::string& table) const;
  void add_label_use(Extra* extra, const std::string& label) { table_uses_.push_back({extra, label}); }
  Symbols& symbols() { return symbols_; }
  [[noreturn]] void unknown(const std::string& why = "") const;

 private:
  struct Symbol {
    enum class Kind : uint8_t { kRegister, kLocal, kParameter, kShared } kind = Kind::kRegister;
    uint32_t offset = 0;
    uint32_t bits = 0;  ///< of a register; bytes of others
  };
  struct BranchUse {
    size_t at;
    std::string label;
    std::vector<uint32_t> scopes;  ///< the innermost last
  };

  const Symbol* find(const std::string& symbol) const;
  void declare(const std::string& directive);
  void declare_registers(const std::string& directive);
  void declare_parameters();
  void decode_instruction(const std::string& text);
  uint32_t special(const std::string& operand, uint32_t bits);
  uint32_t special_register(Special which, uint32_t bits);
  uint32_t symbol_address(const std::string& operand, uint32_t bits);
  uint32_t local_address(uint32_t offset, uint32_t bits, bool is_parameter);
  void resolve_labels();
  static const DecodeTable& table();

  const FunctionText& text_;
  Symbols& symbols_;
  Function& into_;
  std::vector<std::map<std::string, Symbol>> scopes_{1};
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> constants_;
  std::map<std::pair<int, uint32_t>, uint32_t> specials_;
  std::map<std::pair<uint32_t, std::string>, uint32_t> labels_;  ///< by scope
  std::vector<uint32_t> scope_ids_{0};
  uint32_t scope_count_ = 0;
  std::map<std::string, std::vector<std::string>> label_tables_;
  std::vector<BranchUse> branch_uses_;
  std::vector<std::pair<Extra*, std::string>> table_uses_;
  std::string last_label_;
  std::string name_;
  std::string statement_;
  int line_ = 0;
  uint32_t carry_ = kNone;
  uint32_t guard_ = kNone;
  bool guard_negated_ = false;
};

/// Bits of a register that holds a value of the type; throws Unknown.
uint32_t register_bits(const std::string& type);
inline bool is_float(const std::string& type) {
  return type == "f32" || type == "f64";
}
inline bool is_signed(const std::string& type) {
  return type[0] == 's';
}

}  // namespace fake_cuda::ptx
