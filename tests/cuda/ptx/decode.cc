#include "tests/cuda/ptx/decode.h"

#include <algorithm>
#include <cstdlib>

namespace fake_cuda::ptx {
namespace {

bool is_number(const std::string& text) {
  const size_t digits = text.find_first_not_of("+-");
  return digits != std::string::npos && text[digits] >= '0' && text[digits] <= '9';
}

/// Integers, and floats by their bits; the value of a type of so many bits.
uint64_t parse_number(const std::string& text, uint32_t bits) {
  const bool negative = text[0] == '-';
  const std::string digits = text.substr(negative ? 1 : 0);
  if (digits.size() > 2 && digits[0] == '0' &&
      (digits[1] == 'f' || digits[1] == 'F' || digits[1] == 'd' || digits[1] == 'D')) {
    uint64_t value = std::strtoull(digits.c_str() + 2, nullptr, 16);
    const bool is_double = digits[1] == 'd' || digits[1] == 'D';
    if (is_double && bits == 32) {
      double wide = 0;
      std::memcpy(&wide, &value, sizeof wide);
      const auto narrow = static_cast<float>(wide);
      value = 0;
      std::memcpy(&value, &narrow, sizeof narrow);
    }
    if (negative) value ^= uint64_t{1} << (bits - 1);
    return value;
  }
  if (digits.find('.') != std::string::npos && digits.find("0x") != 0) {
    const double number = std::strtod(text.c_str(), nullptr);
    const auto narrow = static_cast<float>(number);
    uint64_t value = 0;
    if (bits == 64) std::memcpy(&value, &number, sizeof number);
    if (bits == 32) std::memcpy(&value, &narrow, sizeof narrow);
    return value;
  }
  const bool binary = digits.size() > 2 && digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B');
  const uint64_t value =
      binary ? std::strtoull(digits.c_str() + 2, nullptr, 2) : std::strtoull(digits.c_str(), nullptr, 0);
  return negative ? 0 - value : value;
}

const std::map<std::string, Special> kSpecials = {
    {"%tid.x", Special::kTidX},
    {"%tid.y", Special::kTidY},
    {"%tid.z", Special::kTidZ},
    {"%ntid.x", Special::kNtidX},
    {"%ntid.y", Special::kNtidY},
    {"%ntid.z", Special::kNtidZ},
    {"%ctaid.x", Special::kCtaidX},
    {"%ctaid.y", Special::kCtaidY},
    {"%ctaid.z", Special::kCtaidZ},
    {"%nctaid.x", Special::kNctaidX},
    {"%nctaid.y", Special::kNctaidY},
    {"%nctaid.z", Special::kNctaidZ},
    {"%laneid", Special::kLane},
    {"%warpid", Special::kWarp},
    {"%nwarpid", Special::kWarps},
    {"%smid", Special::kMultiprocessor},
    {"%nsmid", Special::kMultiprocessors},
    {"%gridid", Special::kGrid},
    {"%lanemask_eq", Special::kMaskEq},
    {"%lanemask_lt", Special::kMaskLt},
    {"%lanemask_le", Special::kMaskLe},
    {"%lanemask_gt", Special::kMaskGt},
    {"%lanemask_ge", Special::kMaskGe},
    {"%dynamic_smem_size", Special::kDynamicShared},
    {"%total_smem_size", Special::kTotalShared},
    {"%envreg1", Special::kWorkspaceHigh},
    {"%envreg2", Special::kWorkspaceLow},
    // Each block is a cluster of its own.
    {"%is_explicit_cluster", Special::kZero},
    {"%cluster_ctaid.x", Special::kZero},
    {"%cluster_ctaid.y", Special::kZero},
    {"%cluster_ctaid.z", Special::kZero},
    {"%cluster_ctarank", Special::kZero},
    {"%cluster_nctaid.x", Special::kOne},
    {"%cluster_nctaid.y", Special::kOne},
    {"%cluster_nctaid.z", Special::kOne},
    {"%cluster_nctarank", Special::kOne},
    {"%clusterid.x", Special::kCtaidX},
    {"%clusterid.y", Special::kCtaidY},
    {"%clusterid.z", Special::kCtaidZ},
    {"%nclusterid.x", Special::kNctaidX},
    {"%nclusterid.y", Special::kNctaidY},
    {"%nclusterid.z", Special::kNctaidZ},
};

uint32_t aligned(uint32_t value, uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

void local_address_handler(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(lanes));
    const uint64_t base = instruction.base == Base::kLocal
                              ? reinterpret_cast<uint64_t>(warp.frame().of_lane(lane))
                              : reinterpret_cast<uint64_t>(warp.block().parameters());
    warp.at<uint64_t>(instruction.d)[lane] = base + static_cast<uint64_t>(instruction.offset);
  }
}

}  // namespace

uint32_t register_bits(const std::string& type) {
  if (type == "pred") return 1;
  return std::max<uint32_t>(16, static_cast<uint32_t>(type_bytes(type)) * 8);
}

Decoder::Decoder(const FunctionText& text, Symbols& symbols, Function& into)
    : text_(text), symbols_(symbols), into_(into) {}

const DecodeTable& Decoder::table() {
  static const DecodeTable kTable = [] {
    DecodeTable all;
    for (const auto add : {add_arithmetic, add_floating, add_compare, add_convert, add_memory, add_atomics,
                           add_warp, add_control}) {
      add(all);
    }
    return all;
  }();
  return kTable;
}

void Decoder::unknown(const std::string& why) const {
  throw Unknown("function " + text_.name + ", line " + std::to_string(line_) + ": '" + statement_ +
                "' is unknown to the fake driver" + (why.empty() ? "" : " (" + why + ")"));
}

void Decoder::decode() {
  into_.name = text_.name;
  into_.most_threads = text_.most_threads;
  into_.shared_bytes = symbols_.shared_bytes();
  declare_parameters();
  for (const Statement& statement : text_.statements) {
    line_ = statement.line;
    statement_ = statement.text;
    switch (statement.kind) {
      case Statement::Kind::kOpen:
        scopes_.emplace_back();
        scope_ids_.push_back(++scope_count_);
        break;
      case Statement::Kind::kClose:
        scopes_.pop_back();
        scope_ids_.pop_back();
        break;
      case Statement::Kind::kLabel:
        labels_[{scope_ids_.back(), statement.text}] = static_cast<uint32_t>(into_.code.size());
        last_label_ = statement.text;
        break;
      case Statement::Kind::kDirective: declare(statement.text); break;
      case Statement::Kind::kInstruction: try { decode_instruction(statement.text);
        } catch (const Unknown& error) {
          if (std::string(error.what()).find("function ") == 0) throw;
          unknown(error.what());
        }
        break;
    }
  }
  Instruction end;
  end.flow = Flow::kReturn;
  end.line = line_;
  into_.code.push_back(end);
  into_.shared_bytes = aligned(into_.shared_bytes, 16);
  resolve_labels();
}

void Decoder::declare_parameters() {
  uint32_t lane_at = 0;
  const auto place = [&](const Variable& variable, uint32_t& at, Symbol::Kind kind) {
    at = aligned(at, std::min<uint32_t>(variable.alignment, 16));
    const auto bytes = static_cast<uint32_t>(variable.bytes);
    scopes_[0][variable.name] = {kind, at, bytes};
    const std::pair<uint32_t, uint32_t> result = {at, bytes};
    at += bytes;
    return result;
  };
  for (const Variable& result : text_.results)
    into_.results.push_back(place(result, lane_at, Symbol::Kind::kLocal));
  for (const Variable& parameter : text_.parameters) {
    if (text_.is_entry) {
      into_.parameters.push_back(place(parameter, into_.parameter_bytes, Symbol::Kind::kParameter));
    } else {
      into_.parameters.push_back(place(parameter, lane_at, Symbol::Kind::kLocal));
    }
  }
  into_.lane_bytes = aligned(lane_at, 16);
}

void Decoder::declare_registers(const std::string& directive) {
  const size_t dot = directive.find('.', 1);
  const size_t end = directive.find(' ', dot);
  const uint32_t bits = register_bits(directive.substr(dot + 1, end - dot - 1));
  if (bits > 64) unknown("registers of 128 bits");
  for (const std::string& one : split_operands(directive.substr(end))) {
    const size_t angle = one.find('<');
    if (angle == std::string::npos) {
      scopes_.back()[one] = {Symbol::Kind::kRegister, fresh(bits), bits};
      continue;
    }
    const int count = std::atoi(one.c_str() + angle + 1);
    for (int i = 0; i < count; ++i)
      scopes_.back()[one.substr(0, angle) + std::to_string(i)] = {Symbol::Kind::kRegister, fresh(bits), bits};
  }
}

void Decoder::declare(const std::string& directive) {
  if (directive.find(".pragma") == 0 || directive.find(".callprototype") == 0) return;
  if (directive.find(".reg") == 0) {
    declare_registers(directive);
    return;
  }
  if (directive.find(".branchtargets") == 0) {
    label_tables_[last_label_] = split_operands(directive.substr(14));
    return;
  }
  const Variable variable = parse_variable(directive);
  const auto bytes = static_cast<uint32_t>(variable.bytes);
  if (variable.space == "shared") {
    if (!text_.is_entry) unknown("shared memory of a function");
    into_.shared_bytes = aligned(into_.shared_bytes, std::max<uint32_t>(variable.alignment, 16));
    scopes_.back()[variable.name] = {Symbol::Kind::kShared, into_.shared_bytes, bytes};
    into_.shared_bytes += bytes;
  } else if (variable.space == "local" || variable.space == "param") {
    into_.lane_bytes = aligned(into_.lane_bytes, 16);
    scopes_.back()[variable.name] = {Symbol::Kind::kLocal, into_.lane_bytes, bytes};
    into_.lane_bytes = aligned(into_.lane_bytes + bytes, 16);
  } else {
    unknown();
  }
}

const Decoder::Symbol* Decoder::find(const std::string& symbol) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(symbol);
    if (found != scope->end()) return &found->second;
  }
  return nullptr;
}

void Decoder::decode_instruction(const std::string& text) {
  std::string rest = text;
  guard_ = kNone;
  guard_negated_ = false;
  if (rest[0] == '@') {
    const size_t end = rest.find(' ');
    std::string operand = rest.substr(1, end - 1);
    guard_ = predicate(operand, guard_negated_);
    rest = trimmed(rest.substr(end));
  }
  const size_t end = std::min(rest.find(' '), rest.size());
  std::string opcode = rest.substr(0, end);
  operands = split_operands(rest.substr(end));
  modifiers.clear();
  for (size_t at = 0; at != std::string::npos;) {
    size_t dot = opcode.find('.', at);
    modifiers.push_back(opcode.substr(at, dot - at));
    at = dot == std::string::npos ? dot : dot + 1;
  }
  name_ = modifiers.front();
  modifiers.erase(modifiers.begin());
  const auto found = table().find(name_);
  if (found == table().end()) unknown();
  found->second(*this);
  if (!modifiers.empty()) unknown("modifier ." + modifiers.front());
}

bool Decoder::take(const std::string& modifier) {
  const auto found = std::find(modifiers.begin(), modifiers.end(), modifier);
  if (found == modifiers.end()) return false;
  modifiers.erase(found);
  return true;
}

std::string Decoder::take_one(std::initializer_list<const char*> choices) {
  for (const char* choice : choices) {
    if (take(choice)) return choice;
  }
  return "";
}

std::string Decoder::take_type() {
  if (modifiers.empty()) unknown("without a type");
  std::string type = modifiers.back();
  modifiers.pop_back();
  type_bytes(type);
  return type;
}

uint32_t Decoder::fresh(uint32_t bits) {
  const uint32_t at = into_.register_bytes;
  into_.register_bytes += bits == 1 ? 16 : bits / 8 * kLanes;
  return at;
}

uint32_t Decoder::constant(uint64_t value, uint32_t bits) {
  if (bits < 64) value &= (uint64_t{1} << bits) - 1;
  const auto found = constants_.find({value, bits});
  if (found != constants_.end()) return found->second;
  const uint32_t at = fresh(bits);
  if (bits == 1) {
    into_.fixed.push_back({at, 1, false, Special::kZero, value != 0 ? uint64_t{kAll} : 0});
  } else {
    into_.fixed.push_back({at, bits, false, Special::kZero, value});
  }
  return constants_[{value, bits}] = at;
}

uint32_t Decoder::special(const std::string& operand, uint32_t bits) {
  const auto found = kSpecials.find(operand);
  return found == kSpecials.end() ? kNone : special_register(found->second, bits);
}

uint32_t Decoder::special_register(Special which, uint32_t bits) {
  const auto key = std::pair(static_cast<int>(which), bits);
  if (const auto known = specials_.find(key); known != specials_.end()) return known->second;
  const uint32_t at = fresh(bits);
  into_.fixed.push_back({at, bits, true, which, 0});
  return specials_[key] = at;
}

uint32_t Decoder::local_address(uint32_t offset, uint32_t bits, bool is_parameter) {
  if (bits != 64) unknown("an address in 32 bits");
  Instruction instruction = make(local_address_handler);
  instruction.guard = kNone;
  instruction.base = is_parameter ? Base::kParameter : Base::kLocal;
  instruction.offset = offset;
  instruction.d = fresh(64);
  into_.code.push_back(instruction);
  return instruction.d;
}

/// kNone: it is no symbol with an address.
uint32_t Decoder::symbol_address(const std::string& operand, uint32_t bits) {
  const size_t plus = operand.find('+');
  const std::string symbol = trimmed(operand.substr(0, plus));
  const uint64_t offset =
      plus == std::string::npos ? 0 : std::strtoull(operand.c_str() + plus + 1, nullptr, 0);
  if (const Symbol* own = find(symbol); own != nullptr) {
    if (own->kind == Symbol::Kind::kRegister) return kNone;
    if (own->kind == Symbol::Kind::kShared) return constant(kSharedStart + own->offset + offset, bits);
    return local_address(own->offset + static_cast<uint32_t>(offset), bits,
                         own->kind == Symbol::Kind::kParameter);
  }
  const uint32_t shared = symbols_.find_shared(symbol);
  if (shared == kDynamic) {
    if (offset != 0) unknown("an offset");
    return special_register(Special::kDynamicStart, bits);
  }
  if (shared != kNone) return constant(kSharedStart + shared + offset, bits);
  if (const uint64_t variable = symbols_.find_variable(symbol); variable != 0)
    return constant(variable + offset, bits);
  if (const Function* function = symbols_.find_function(symbol); function != nullptr)
    return constant(reinterpret_cast<uint64_t>(function), bits);
  return kNone;
}

Place Decoder::source_place(const std::string& operand, uint32_t bits) {
  if (const Symbol* symbol = find(operand); symbol != nullptr && symbol->kind == Symbol::Kind::kRegister)
    return {symbol->offset, symbol->bits};
  if (is_number(operand)) return {constant(parse_number(operand, bits), bits), bits};
  if (operand == "WARP_SZ") return {constant(kLanes, bits), bits};
  if (const uint32_t at = special(operand, bits); at != kNone) return {at, bits};
  if (const uint32_t at = symbol_address(operand, bits); at != kNone) return {at, bits};
  unknown("operand " + operand);
}

uint32_t Decoder::source(const std::string& operand, uint32_t bits) {
  const Place place = source_place(operand, bits);
  if (place.bits != bits)
    unknown("operand " + operand + " has " + std::to_string(place.bits) + " bits, not " +
            std::to_string(bits));
  return place.offset;
}

Place Decoder::target_place(const std::string& operand, uint32_t bits) {
  if (operand == "_") return {fresh(bits), bits};
  const Symbol* symbol = find(operand);
  if (symbol == nullptr || symbol->kind != Symbol::Kind::kRegister) unknown("register " + operand);
  return {symbol->offset, symbol->bits};
}

uint32_t Decoder::target(const std::string& operand, uint32_t bits) {
  const Place place = target_place(operand, bits);
  if (place.bits != bits)
    unknown("register " + operand + " has " + std::to_string(place.bits) + " bits, not " +
            std::to_string(bits));
  return place.offset;
}

uint32_t Decoder::predicate(const std::string& operand, bool& negated) {
  negated = operand[0] == '!';
  return source(negated ? operand.substr(1) : operand, 1);
}

bool Decoder::local_offset(const std::string& symbol, uint32_t& offset, uint32_t& bytes) const {
  const Symbol* own = find(symbol);
  if (own == nullptr || own->kind != Symbol::Kind::kLocal) return false;
  offset = own->offset;
  bytes = own->bits;
  return true;
}

void Decoder::address(Instruction& instruction, const std::string& operand, const std::string& space) {
  if (operand.size() < 2 || operand[0] != '[' || operand.back() != ']') unknown("address " + operand);
  const std::string inside = trimmed(operand.substr(1, operand.size() - 2));
  const size_t plus = inside.find_first_of("+", 1);
  const std::string base = trimmed(inside.substr(0, plus));
  if (plus != std::string::npos)
    instruction.offset = static_cast<int64_t>(parse_number(trimmed(inside.substr(plus + 1)), 64));
  instruction.is_shared = space == "shared";
  const Symbol* own = find(base);
  if (own != nullptr && own->kind != Symbol::Kind::kRegister && own->kind != Symbol::Kind::kShared) {
    instruction.base = own->kind == Symbol::Kind::kLocal ? Base::kLocal : Base::kParameter;
    instruction.offset += own->offset;
    return;
  }
  const Place place = source_place(base, 64);
  if (place.bits != 32 && place.bits != 64) unknown("address " + operand);
  instruction.base = place.bits == 64 ? Base::kRegister64 : Base::kRegister32;
  instruction.a = place.offset;
}

Instruction Decoder::make(Handler run, Flow flow) const {
  Instruction instruction;
  instruction.run = run;
  instruction.flow = flow;
  instruction.line = line_;
  return instruction;
}

uint32_t Decoder::carry() {
  if (carry_ == kNone) carry_ = fresh(1);
  return carry_;
}

Extra* Decoder::extra() {
  return into_.extras.emplace_back(std::make_unique<Extra>()).get();
}

void Decoder::emit(Instruction instruction) {
  instruction.guard = guard_;
  instruction.negated = guard_negated_;
  into_.code.push_back(instruction);
}

void Decoder::emit_branch(Instruction instruction, const std::string& label) {
  branch_uses_.push_back({into_.code.size(), label, scope_ids_});
  emit(instruction);
}

const std::vector<std::string>& Decoder::labels_of(const std::string& table) const {
  const auto found = label_tables_.find(table);
  if (found == label_tables_.end()) unknown("branch targets " + table);
  return found->second;
}

void Decoder::resolve_labels() {
  const auto find_label = [&](const std::string& label, const std::vector<uint32_t>& scopes) {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      const auto found = labels_.find({*scope, label});
      if (found != labels_.end()) return found->second;
    }
    throw Unknown("function " + text_.name + ": label " + label + " is missing");
  };
  for (const BranchUse& use : branch_uses_) into_.code[use.at].target = find_label(use.label, use.scopes);
  for (const auto& [extra, label] : table_uses_) extra->targets.push_back(find_label(label, {0}));
}

}  // namespace fake_cuda::ptx
