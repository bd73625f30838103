#include "topology/xml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace tutti::topology {
namespace {

constexpr size_t kAttributesMax = 64;
constexpr size_t kNameMax = 64;
constexpr size_t kQuoteMax = 24;

struct Entity {
  std::string_view name;
  char character;
};
constexpr std::array<Entity, 5> kEntities = {
    {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  Result<XmlElement> run() {
    if (rest_.size() > kXmlBytesMax) return error(format("more than %zu bytes", kXmlBytesMax));
    TUTTI_TRY(skip_between());
    if (rest_.empty() || rest_.front() != '<') return expected("an element");
    XmlElement root;
    TUTTI_TRY(read_tree(root));
    TUTTI_TRY(skip_between());
    if (!rest_.empty()) return expected("the end of the file");
    return root;
  }

 private:
  Status error(const std::string& text) const {
    return {Code::kInvalidArgument, "line " + std::to_string(line_) + ": " + text};
  }
  Status expected(std::string_view what) const {
    std::string found = "the end of the file";
    if (!rest_.empty()) {
      found = "'";
      for (const char c : rest_.substr(0, kQuoteMax)) found += c >= ' ' && c <= '~' ? c : '?';
      found += "'";
    }
    return error("expected " + std::string(what) + ", found " + found);
  }

  void advance(size_t bytes) {
    line_ +=
        static_cast<size_t>(std::count(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(bytes), '\n'));
    rest_.remove_prefix(bytes);
  }
  bool take(std::string_view symbol) {
    if (!rest_.starts_with(symbol)) return false;
    advance(symbol.size());
    return true;
  }
  void skip_blanks() {
    size_t length = 0;
    while (length < rest_.size() && is_blank(rest_[length])) ++length;
    advance(length);
  }
  Status skip_past(std::string_view end, const char* what) {
    const size_t found = rest_.find(end);
    if (found == std::string_view::npos) return error(std::string(what) + " does not end");
    advance(found + end.size());
    return {};
  }

  /// Comments, processing instructions and document types.
  Status skip_markup(bool* skipped) {
    *skipped = true;
    if (take("<!--")) return skip_past("-->", "the comment");
    if (take("<?")) return skip_past("?>", "the processing instruction");
    if (rest_.starts_with("<!DOCTYPE")) {
      if (rest_.substr(0, rest_.find('>')).find('[') != std::string_view::npos) {
        return error("a document type with an internal part is refused");
      }
      return skip_past(">", "the document type");
    }
    *skipped = false;
    return {};
  }
  Status skip_between() {
    bool skipped = true;
    while (skipped) {
      skip_blanks();
      TUTTI_TRY(skip_markup(&skipped));
    }
    return {};
  }

  std::string_view take_name() {
    size_t length = 0;
    while (length < rest_.size() && is_name_character(rest_[length])) ++length;
    const std::string_view name = rest_.substr(0, length);
    advance(length);
    return name;
  }

  /// Elements are read with a stack of their own: no input can exhaust the thread's.
  Status read_tree(XmlElement& root) {
    std::vector<XmlElement*> open;
    bool empty = false;
    TUTTI_TRY(read_tag(root, &empty));
    if (empty) return {};
    open.push_back(&root);
    while (!open.empty()) {
      XmlElement& element = *open.back();
      TUTTI_TRY(read_text(element.text));
      bool skipped = false;
      TUTTI_TRY(skip_markup(&skipped));
      if (skipped) continue;
      if (rest_.empty()) {
        return error("the file ends inside <" + element.name + "> of line " + std::to_string(element.line));
      }
      if (take("</")) {
        if (take_name() != element.name) {
          return error("expected </" + element.name + "> of line " + std::to_string(element.line));
        }
        skip_blanks();
        if (!take(">")) return expected("'>'");
        open.pop_back();
        continue;
      }
      if (open.size() >= kXmlDepthMax)
        return error(format("elements inside more than %zu others", kXmlDepthMax));
      XmlElement& child = element.children.emplace_back();
      TUTTI_TRY(read_tag(child, &empty));
      if (!empty) open.push_back(&child);
    }
    return {};
  }

  Status read_tag(XmlElement& element, bool* empty) {
    if (++elements_ > kXmlElementsMax) return error(format("more than %zu elements", kXmlElementsMax));
    element.line = line_;
    if (!take("<")) return expected("'<'");
    const std::string_view name = take_name();
    if (name.empty() || name.size() > kNameMax) return expected("the name of an element");
    element.name = name;
    while (true) {
      skip_blanks();
      *empty = take("/>");
      if (*empty || take(">")) return {};
      if (rest_.empty()) {
        return error("the file ends inside <" + element.name + "> of line " + std::to_string(element.line));
      }
      if (element.attributes.size() >= kAttributesMax) return error("too many attributes");
      TUTTI_TRY(read_attribute(element));
    }
  }

  Status read_attribute(XmlElement& element) {
    const std::string_view key = take_name();
    if (key.empty() || key.size() > kNameMax) return expected("an attribute or '>'");
    if (element.attribute(key) != nullptr) return error("attribute " + std::string(key) + " stands twice");
    skip_blanks();
    if (!take("=")) return expected("'='");
    skip_blanks();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '"' && quote != '\'') return expected("a value in quotes");
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) return error("the value of " + std::string(key) + " does not end");
    std::string value;
    TUTTI_TRY(unescape(rest_.substr(1, end - 1), value));
    advance(end + 1);
    element.attributes.emplace_back(key, std::move(value));
    return {};
  }

  Status read_text(std::string& text) {
    const size_t end = std::min(rest_.find('<'), rest_.size());
    TUTTI_TRY(unescape(rest_.substr(0, end), text));
    advance(end);
    return {};
  }

  Status unescape(std::string_view raw, std::string& out) const {
    while (!raw.empty()) {
      const size_t plain = std::min(raw.find('&'), raw.size());
      if (raw.substr(0, plain).find('<') != std::string_view::npos) return error("'<' in a value");
      out += raw.substr(0, plain);
      raw.remove_prefix(plain);
      if (raw.empty()) break;
      const size_t end = raw.find(';');
      const auto character = end == std::string_view::npos ? std::nullopt : entity(raw.substr(1, end - 1));
      if (!character) return error("an entity that is not one of XML's own");
      out += *character;
      raw.remove_prefix(end + 1);
    }
    return {};
  }

  /// Character references above 127 become '?': names and models are plain text.
  static std::optional<char> entity(std::string_view name) {
    for (const Entity& known : kEntities) {
      if (known.name == name) return known.character;
    }
    if (!name.starts_with('#')) return std::nullopt;
    name.remove_prefix(1);
    const bool is_hex = name.starts_with('x');
    if (is_hex) name.remove_prefix(1);
    uint32_t code = 0;
    const auto [stop, failure] =
        std::from_chars(name.data(), name.data() + name.size(), code, is_hex ? 16 : 10);
    if (failure != std::errc() || stop != name.data() + name.size() || code == 0) return std::nullopt;
    return code < 128 ? static_cast<char>(code) : '?';
  }

  std::string_view rest_;
  size_t line_ = 1;
  size_t elements_ = 0;
};

}  // namespace

const std::string* XmlElement::attribute(std::string_view key) const {
  for (const auto& [known, text_of] : attributes) {
    if (known == key) return &text_of;
  }
  return nullptr;
}

std::string_view XmlElement::value(std::string_view key) const {
  const std::string* found = attribute(key);
  return found == nullptr ? std::string_view() : std::string_view(*found);
}

Result<XmlElement> parse_xml(std::string_view text) {
  return Reader(text).run();
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto known = std::find_if(kEntities.begin(), kEntities.end(),
                                    [&](const Entity& entity) { return entity.character == c; });
    if (known != kEntities.end()) {
      out += "&" + std::string(known->name) + ";";
    } else {
      out += c;
    }
  }
  return out;
}

Status xml_error(const XmlElement& element, const std::string& text) {
  return {Code::kInvalidArgument, "line " + std::to_string(element.line) + ": " + text};
}

}  // namespace tutti::topology
