// A strict reader of small XML files: elements, attributes, text.
//
// A reader of our own, because topology files come from users and every rank of a job reads one: the reader
// has limits on size, depth and elements, names the line of each mistake, and knows no entities beyond the
// five of XML and character references. So no file can open other files or grow in memory. Not read:
// namespaces, CDATA sections, document types with an internal part. Neither hwloc nor NCCL writes these.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace tutti::topology {

struct XmlElement {
  std::string name;
  size_t line = 0;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::string text;  ///< of this element alone, all parts joined
  std::vector<XmlElement> children;

  /// Null if there is no such attribute.
  const std::string* attribute(std::string_view key) const;
  /// The attribute, or an empty text.
  std::string_view value(std::string_view key) const;
};

inline constexpr size_t kXmlBytesMax = size_t{64} << 20;
inline constexpr size_t kXmlElementsMax = 1u << 18;
inline constexpr size_t kXmlDepthMax = 96;

/// The root element. Errors: kInvalidArgument with "line N: ...".
Result<XmlElement> parse_xml(std::string_view text);

/// `text` as the value of an attribute.
std::string xml_escaped(std::string_view text);

/// A failure at an element: "line N: text".
Status xml_error(const XmlElement& element, const std::string& text);

}  // namespace tutti::topology
