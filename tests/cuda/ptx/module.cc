#include "tests/cuda/ptx/module.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake_cuda::ptx {
namespace {

constexpr size_t kLeastAlignment = 16;

size_t aligned(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool is_in_memory(const Variable& variable) {
  return (variable.space == "global" || variable.space == "const") && !variable.is_external;
}

/// Calls `place(variable, offset)` for each in order; the end.
template <class F>
size_t lay_out(const ModuleText& text, bool managed, F place) {
  size_t at = 0;
  for (const Variable& variable : text.variables) {
    if (!is_in_memory(variable) || variable.is_managed != managed) continue;
    at = aligned(at, std::max<size_t>(variable.alignment, kLeastAlignment));
    place(variable, at);
    at += variable.bytes;
  }
  return at;
}

}  // namespace

size_t Module::variable_bytes(const ModuleText& text, bool managed) {
  return lay_out(text, managed, [](const Variable&, size_t) {});
}

Module::Module(std::shared_ptr<const ModuleText> text, Memory memory)
    : text_(std::move(text)), memory_(memory) {
  for (const bool managed : {false, true}) {
    lay_out(*text_, managed, [&](const Variable& variable, size_t at) {
      variables_[variable.name] = {(managed ? memory_.managed : memory_.variables) + at, &variable};
    });
  }
  for (const Variable& variable : text_->variables) {
    if (variable.space != "shared") continue;
    if (variable.bytes == 0) {
      shared_[variable.name] = kDynamic;
      continue;
    }
    shared_bytes_ =
        static_cast<uint32_t>(aligned(shared_bytes_, std::max<size_t>(variable.alignment, kLeastAlignment)));
    shared_[variable.name] = shared_bytes_;
    shared_bytes_ += static_cast<uint32_t>(variable.bytes);
  }
}

Module::~Module() = default;

uint64_t Module::element_value(const std::string& text, const std::string& type) {
  std::string symbol = text;
  if (symbol.find("generic(") == 0) symbol = symbol.substr(8, symbol.find(')') - 8);
  const size_t plus = text.rfind('+');
  const uint64_t offset =
      plus == std::string::npos || plus == 0 ? 0 : std::strtoull(text.c_str() + plus + 1, nullptr, 0);
  symbol = trimmed(symbol.substr(0, symbol.find('+')));
  if (const uint64_t variable = find_variable(symbol); variable != 0) return variable + offset;
  if (text_->functions.count(symbol) != 0) return reinterpret_cast<uint64_t>(find_function(symbol));
  const bool negative = text[0] == '-';
  const std::string digits = negative ? text.substr(1) : text;
  uint64_t value = 0;
  if (digits.size() > 1 && digits[0] == '0' && std::strchr("fFdD", digits[1]) != nullptr) {
    value = std::strtoull(digits.c_str() + 2, nullptr, 16);
    return negative ? value ^ uint64_t { 1 } << (type_bytes(type) * 8 - 1) : value;
  }
  if (digits.find('.') != std::string::npos) {
    const double number = std::strtod(text.c_str(), nullptr);
    const auto narrow = static_cast<float>(number);
    if (type == "f64") std::memcpy(&value, &number, sizeof number);
    if (type == "f32") std::memcpy(&value, &narrow, sizeof narrow);
    return value;
  }
  value = std::strtoull(digits.c_str(), nullptr, 0);
  return negative ? 0 - value : value;
}

void Module::initialize() {
  for (const auto& [name, place] : variables_) {
    const auto& [address, variable] = place;
    auto* const at = reinterpret_cast<unsigned char*>(address);
    std::memset(at, 0, variable->bytes);
    const size_t bytes = type_bytes(variable->type);
    for (size_t i = 0; i < variable->values.size(); ++i) {
      // mask(symbol): one byte of an address.
      const std::string& text = variable->values[i];
      uint64_t value = 0;
      if (text.find("0xFF") == 0 && text.find('(') != std::string::npos) {
        const size_t shift = text.find('(') - 4;
        value = element_value(text.substr(text.find('(') + 1, text.rfind(')') - text.find('(') - 1), "b64") >>
                (shift * 4);
      } else {
        value = element_value(text, variable->type);
      }
      std::memcpy(at + i * bytes, &value, std::min<size_t>(bytes, sizeof value));
    }
  }
}

uint64_t Module::find_variable(const std::string& name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? 0 : found->second.first;
}

std::pair<uint64_t, size_t> Module::find_global(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return {0, 0};
  return {found->second.first, found->second.second->bytes};
}

uint32_t Module::find_shared(const std::string& name) const {
  const auto found = shared_.find(name);
  return found == shared_.end() ? kNone : found->second;
}

const Function* Module::find_function(const std::string& name) {
  const auto known = functions_.find(name);
  if (known != functions_.end()) return known->second.get();
  const auto found = text_->functions.find(name);
  if (found == text_->functions.end() || !found->second.has_body) return nullptr;
  // Known before it is decoded: it may call itself.
  Function& function = *(functions_[name] = std::make_unique<Function>());
  try {
    Decoder(found->second, *this, function).decode();
  } catch (...) {
    functions_.erase(name);
    throw;
  }
  return &function;
}

const Function* Module::find_kernel(const std::string& name) {
  const auto found = text_->functions.find(name);
  if (found == text_->functions.end() || !found->second.is_entry) return nullptr;
  return find_function(name);
}

}  // namespace fake_cuda::ptx
