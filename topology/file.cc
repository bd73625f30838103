#include "topology/file.h"

#include <cerrno>
#include <fstream>
#include <iterator>

#include "topology/describe.h"
#include "topology/hwloc_xml.h"
#include "topology/nccl_xml.h"
#include "topology/text.h"
#include "topology/xml.h"

namespace tutti::topology {
namespace {

Result<Imported> without_notes(Result<Graph> graph) {
  if (!graph) return graph.status();
  return Imported{std::move(*graph), {}};
}

/// The first line that is neither empty nor a comment.
std::string_view first_line(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (!line.empty() && line.front() != '#') return line;
  }
  return {};
}

}  // namespace

Result<Imported> parse_topology(std::string_view text) {
  const std::string_view first = first_line(text);
  if (first.starts_with("tutti")) return without_notes(parse_graph(text));
  if (!first.starts_with("<")) return without_notes(parse_description(text));
  const auto root = parse_xml(text);
  if (!root) return root.status();
  if (root->name == "topology") return import_hwloc(*root);
  if (root->name == "system") return import_nccl(*root);
  return xml_error(*root, "<" + root->name + "> is neither hwloc's <topology> nor NCCL's <system>");
}

Result<Imported> read_topology(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error(path, errno);
  std::string text;
  char buffer[1 << 16];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(file.gcount()));
    if (text.size() > kXmlBytesMax) {
      return Status(Code::kInvalidArgument, path + format(": more than %zu bytes", kXmlBytesMax));
    }
  }
  if (file.bad()) return system_error(path, errno);
  auto imported = parse_topology(text);
  if (!imported) return Status(imported.status().code(), path + ": " + std::string(imported.status().text()));
  return imported;
}

}  // namespace tutti::topology
