#include "tests/cuda/ptx/text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

namespace fake_cuda::ptx {
namespace {

/// Comments become blanks; lines stay.
std::string without_comments(const std::string& ptx) {
  std::string text = ptx;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == '"') {
      i = text.find('"', i + 1);
      if (i == std::string::npos) break;
    } else if (text[i] == '/' && text[i + 1] == '/') {
      for (; i < text.size() && text[i] != '\n'; ++i) text[i] = ' ';
    } else if (text[i] == '/' && text[i + 1] == '*') {
      const size_t end = std::min(text.find("*/", i), text.size() - 2) + 2;
      for (; i < end; ++i) {
        if (text[i] != '\n') text[i] = ' ';
      }
    }
  }
  return text;
}

class Parser {
 public:
  explicit Parser(const std::string& ptx) : text_(without_comments(ptx)) {}

  ModuleText parse() {
    ModuleText module;
    while (skip_blanks()) parse_item(module);
    return module;
  }

 private:
  bool skip_blanks() {
    while (at_ < text_.size() &&
           (std::isspace(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == 0)) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
    return at_ < text_.size();
  }

  /// Up to, and without, the first of `ends` outside of the brackets that it opens itself.
  std::string read_until(const std::string& ends) {
    std::string piece;
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (depth == 0 && ends.find(c) != std::string::npos) break;
      if (c == '\n') ++line_;
      depth += c == '(' || c == '[' || (c == '{' && ends.find('{') == std::string::npos) ? 1 : 0;
      depth -= c == ')' || c == ']' || (c == '}' && ends.find('{') == std::string::npos) ? 1 : 0;
      piece += std::isspace(static_cast<unsigned char>(c)) != 0 ? ' ' : c;
    }
    return trimmed(piece);
  }

  std::string read_line() {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string piece = trimmed(text_.substr(at_, end - at_));
    at_ = end;
    return piece;
  }

  /// Whether the word, all of it, is here.
  bool starts_with(const std::string& word) const {
    const size_t end = at_ + word.size();
    return text_.compare(at_, word.size(), word) == 0 &&
           (end >= text_.size() || std::isspace(static_cast<unsigned char>(text_[end])) != 0);
  }

  void parse_item(ModuleText& module) {
    for (const char* word : {".version", ".target", ".address_size", ".file", ".loc"}) {
      if (!starts_with(word)) continue;
      read_line();
      return;
    }
    if (starts_with(".section")) {
      read_until("{");
      ++at_;
      read_until("}");
      ++at_;
      return;
    }
    const int line = line_;
    const std::string head = read_until(";{=");
    if (head.find(".func") != std::string::npos || head.find(".entry") != std::string::npos) {
      parse_function(module, head);
      return;
    }
    std::string values;
    if (at_ < text_.size() && text_[at_] == '=') {
      ++at_;
      values = read_until(";");
    }
    ++at_;
    if (head.find(".pragma") == 0 || head.find(".alias") == 0) return;
    try {
      Variable variable = parse_variable(head);
      flatten(values, variable.values);
      module.variables.push_back(std::move(variable));
    } catch (const Unknown& unknown) {
      throw Unknown("line " + std::to_string(line) + ": " + unknown.what());
    }
  }

  static void flatten(const std::string& values, std::vector<std::string>& into) {
    const std::string text = trimmed(values);
    if (text.empty()) return;
    if (text.front() != '{') {
      into.push_back(text);
      return;
    }
    for (const std::string& part : split_operands(text.substr(1, text.size() - 2))) flatten(part, into);
  }

  static std::vector<Variable> parse_list(const std::string& list) {
    std::vector<Variable> all;
    for (const std::string& one : split_operands(list)) all.push_back(parse_variable(one));
    return all;
  }

  void parse_function(ModuleText& module, const std::string& head) {
    FunctionText function;
    function.is_entry = head.find(".entry") != std::string::npos;
    size_t at = function.is_entry ? head.find(".entry") + 6 : head.find(".func") + 5;
    const auto skip = [&] { at = std::min(head.find_first_not_of(' ', at), head.size()); };
    const auto list = [&] {
      const size_t end = head.find(')', at);
      const std::string inside = head.substr(at + 1, end - at - 1);
      at = end + 1;
      return parse_list(inside);
    };
    skip();
    if (!function.is_entry && head[at] == '(') function.results = list();
    skip();
    const size_t end = std::min(head.find_first_of(" (.", at), head.size());
    function.name = head.substr(at, end - at);
    at = end;
    skip();
    if (at < head.size() && head[at] == '(') function.parameters = list();
    if (const size_t limit = head.find(".maxntid"); limit != std::string::npos) {
      std::istringstream numbers(head.substr(limit + 8));
      function.most_threads = 1;
      for (std::string number; std::getline(numbers, number, ',');) {
        const int count = std::atoi(trimmed(number).c_str());
        if (count > 0) function.most_threads *= static_cast<uint32_t>(count);
      }
    }
    const bool has_body = text_[at_++] == '{';
    if (has_body) parse_body(function);
    function.has_body = has_body;
    FunctionText& known = module.functions[function.name];
    if (has_body || !known.has_body) known = std::move(function);
  }

  void parse_body(FunctionText& function) {
    const auto add = [&](Statement::Kind kind, int line, std::string text) {
      function.statements.push_back({kind, line, std::move(text)});
    };
    for (int depth = 1; depth > 0;) {
      if (!skip_blanks()) throw Unknown("function " + function.name + " does not end");
      const int line = line_;
      if (starts_with(".loc")) {
        read_line();
      } else if (text_[at_] == '{' || text_[at_] == '}') {
        const bool opens = text_[at_++] == '{';
        depth += opens ? 1 : -1;
        if (depth > 0) add(opens ? Statement::Kind::kOpen : Statement::Kind::kClose, line, "");
      } else if (const size_t colon = colon_of_label(); colon != std::string::npos) {
        add(Statement::Kind::kLabel, line, trimmed(text_.substr(at_, colon - at_)));
        at_ = colon + 1;
      } else {
        const bool directive = text_[at_] == '.';
        std::string text = read_until(";");
        ++at_;
        add(directive ? Statement::Kind::kDirective : Statement::Kind::kInstruction, line, std::move(text));
      }
    }
  }

  /// npos: no label begins here.
  size_t colon_of_label() const {
    const size_t end = text_.find_first_not_of(kWord, at_);
    const size_t colon = end == std::string::npos || end == at_ ? end : text_.find_first_not_of(' ', end);
    if (colon == std::string::npos || text_[colon] != ':' || text_[colon + 1] == ':')
      return std::string::npos;
    return colon;
  }

  static constexpr const char* kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$%";
  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

ModuleText parse_module(const std::string& ptx) {
  return Parser(ptx).parse();
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<std::string> split_operands(const std::string& text) {
  std::vector<std::string> parts;
  std::string current;
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
    depth -= c == ')' || c == ']' || c == '}' ? 1 : 0;
    if (c == ',' && depth == 0) {
      parts.push_back(trimmed(current));
      current.clear();
    } else {
      current += c;
    }
  }
  if (!trimmed(current).empty()) parts.push_back(trimmed(current));
  return parts;
}

size_t type_bytes(const std::string& type) {
  static const std::map<std::string, size_t> kBytes = {
      {"pred", 1},  {"b8", 1},     {"u8", 1},     {"s8", 1},     {"b16", 2},  {"u16", 2},
      {"s16", 2},   {"f16", 2},    {"bf16", 2},   {"b32", 4},    {"u32", 4},  {"s32", 4},
      {"f32", 4},   {"f16x2", 4},  {"b64", 8},    {"u64", 8},    {"s64", 8},  {"f64", 8},
      {"b128", 16}, {"bf16x2", 4}, {"e4m3x2", 2}, {"e5m2x2", 2}, {"f32x2", 8}};
  const auto found = kBytes.find(type);
  if (found == kBytes.end()) throw Unknown("type ." + type);
  return found->second;
}

Variable parse_variable(const std::string& text) {
  Variable variable;
  std::istringstream words(text);
  std::string rest;
  for (std::string word; words >> word;) {
    if (word == ".align") {
      words >> variable.alignment;
    } else if (word == ".extern") {
      variable.is_external = true;
    } else if (word.find(".attribute") == 0) {
      variable.is_managed = text.find(".managed") != std::string::npos;
      while (word.find(')') == std::string::npos && words >> word) {
      }
    } else if (word == ".ptr") {
      if (words >> word && word == ".align") words >> word;
    } else if (word == ".visible" || word == ".weak" || word == ".common") {
      continue;
    } else if (word == ".global" || word == ".const" || word == ".shared" || word == ".local" ||
               word == ".param" || word == ".reg") {
      if (variable.space.empty()) variable.space = word.substr(1);
    } else if (word.front() == '.') {
      variable.type = word.substr(1);
    } else {
      rest += word;
    }
  }
  size_t count = 1;
  const size_t bracket = rest.find('[');
  variable.name = rest.substr(0, bracket);
  for (size_t at = bracket; at != std::string::npos; at = rest.find('[', at + 1)) {
    count *= std::strtoull(rest.c_str() + at + 1, nullptr, 0);
  }
  if (variable.type.empty() || variable.name.empty()) throw Unknown("declaration '" + text + "'");
  const size_t element = type_bytes(variable.type);
  variable.bytes = element * count;
  variable.alignment = std::max(variable.alignment, static_cast<uint32_t>(element));
  return variable;
}

}  // namespace fake_cuda::ptx
