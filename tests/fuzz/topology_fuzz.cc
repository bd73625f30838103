// Fuzz target: topology files of every form. Any text is refused with a line, or read; what was read is
// printed and read again to the same graph; paths, distances and exports survive it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/file.h"
#include "topology/hwloc_xml.h"
#include "topology/measurements.h"
#include "topology/nccl_xml.h"
#include "topology/paths.h"
#include "topology/search.h"
#include "topology/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  using namespace tutti::topology;
  const std::string_view text(reinterpret_cast<const char*>(data), data_bytes);
  const auto measured = parse_measurements(text);
  if (measured && parse_measurements(print_measurements(*measured)).is_ok() == false) std::abort();
  const auto file = parse_topology(text);
  if (!file) {
    if (!file.status().text().starts_with("line ")) std::abort();
    return 0;
  }
  const Graph& graph = file->graph;
  if (graph.nodes().size() > 200) return 0;
  const auto again = parse_graph(print_graph(graph));
  if (!again || !(*again == graph) || again->digest() != graph.digest()) std::abort();
  const auto last = static_cast<uint32_t>(graph.nodes().size() - 1);
  const auto path = WidestPaths(graph, 0).to(last);
  if (path && path->nodes.size() != path->edges.size() + 1) std::abort();
  if (distance_text(graph, 0, last) != distance_text(graph, last, 0)) std::abort();
  (void)export_hwloc(graph).is_ok();
  (void)export_nccl(graph).is_ok();
  (void)search(graph).is_ok();
  return 0;
}
