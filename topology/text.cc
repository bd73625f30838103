#include "topology/text.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "topology/slice_text.h"
#include "topology/units.h"

namespace tutti::topology {
namespace {

constexpr uint64_t kCountMax = 1u << 20;

/// The value of an enum from its name.
template <class Enum, size_t Count, class Name>
std::optional<Enum> by_name(std::string_view word, const Name& name) {
  for (size_t i = 0; i < Count; ++i) {
    if (name(static_cast<Enum>(i)) == word) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

void print_fact(std::string& out, const std::string& value, const Fact& fact) {
  out += " " + value + " " + std::string(origin_name(fact.origin));
  out += print_spread(fact);
}

void print_node(std::string& out, const Graph& graph, const Node& node) {
  out += std::string(kind_name(node.kind)) + " " + node.name;
  if (node.parent != kNoNode) out += " in " + graph.node(node.parent).name;
  if (!node.bus_id.empty()) out += " bus " + node.bus_id;
  if (node.os_index >= 0) out += " index " + std::to_string(node.os_index);
  if (node.count != 1) out += " count " + std::to_string(node.count);
  if (node.memory_bytes > 0) out += " memory " + print_bytes(node.memory_bytes);
  if (node.bytes_per_s.value > 0) {
    out += " speed";
    print_fact(out, print_speed(node.bytes_per_s.value), node.bytes_per_s);
  }
  if (!node.model.empty()) out += " model \"" + node.model + "\"";
  out += "\n";
}

void print_edge(std::string& out, const Graph& graph, const Edge& edge) {
  out += "link " + graph.node(edge.a).name + " " + graph.node(edge.b).name + " " +
         std::string(kind_name(edge.kind));
  if (edge.count != 1) out += " count " + std::to_string(edge.count);
  print_fact(out, print_speed(edge.bytes_per_s.value), edge.bytes_per_s);
  print_fact(out, print_time(edge.latency_ns.value), edge.latency_ns);
  out += "\n";
}

/// Up to a '#' outside of quotes: models of machines have such signs.
std::string_view without_comment(std::string_view line) {
  bool in_quotes = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') in_quotes = !in_quotes;
    if (line[i] == '#' && !in_quotes) return line.substr(0, i);
  }
  return line;
}

class Parser {
 public:
  Result<Graph> run(std::string_view text) {
    bool titled = false;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_number_;
      Scanner scanner(without_comment(line));
      if (scanner.at_end()) continue;
      if (titled) {
        TUTTI_TRY(parse_line(scanner));
      } else if (scanner.take("tutti") && scanner.take("topology") && scanner.number(1, 1) &&
                 scanner.at_end()) {
        titled = true;
      } else {
        return expected("'" + std::string(kTextTitle) + "'", scanner);
      }
    }
    if (builder_.nodes().empty()) return error("expected a node, found the end of the text");
    return std::move(builder_).finish();
  }

 private:
  Status error(const std::string& text) const {
    return {Code::kInvalidArgument, "line " + std::to_string(line_number_) + ": " + text};
  }
  Status expected(std::string_view what, const Scanner& scanner) const {
    return error("expected " + std::string(what) + ", found " + scanner.quote());
  }
  /// Names the line if an addition was refused.
  Status checked(const Status& status) const { return status ? status : error(std::string(status.text())); }

  Status parse_line(Scanner& scanner) {
    if (scanner.take("link")) return parse_link(scanner);
    const auto is_slices = take_slice_line(scanner, builder_.slices());
    if (!is_slices) return error(std::string(is_slices.status().text()));
    const auto is_call = *is_slices ? is_slices : take_call_line(scanner, builder_.calls());
    if (!is_call) return error(std::string(is_call.status().text()));
    if (*is_call) return scanner.at_end() ? Status() : expected("the end of the line", scanner);
    const Scanner start = scanner;
    const auto kind = by_name<NodeKind, kNodeKinds>(scanner.word(), [](NodeKind k) { return kind_name(k); });
    if (!kind) return expected("a kind of node, 'link', " + std::string(kSliceLines), start);
    return parse_node(*kind, scanner);
  }

  Status parse_node(NodeKind kind, Scanner& scanner) {
    Node node;
    node.kind = kind;
    node.name = scanner.word();
    if (node.name.empty()) return expected("a name", scanner);
    while (!scanner.at_end()) TUTTI_TRY(parse_field(node, scanner));
    return checked(builder_.add(std::move(node)).status());
  }

  Status parse_field(Node& node, Scanner& scanner) {
    if (scanner.take("in")) return parse_end(node.parent, scanner);
    if (scanner.take("bus")) {
      node.bus_id = scanner.word();
      return node.bus_id.empty() ? expected("a bus id", scanner) : Status();
    }
    if (scanner.take("index")) {
      const auto index = scanner.number(0, INT32_MAX);
      if (!index) return expected("a number up to 2147483647", scanner);
      node.os_index = static_cast<int32_t>(*index);
      return {};
    }
    if (scanner.take("count")) return parse_count(node.count, scanner);
    if (scanner.take("memory")) {
      const auto bytes = scanner.bytes();
      if (!bytes) return expected("a size, as '64 GB'", scanner);
      node.memory_bytes = *bytes;
      return {};
    }
    if (scanner.take("speed")) return parse_fact(node.bytes_per_s, scanner.speed(), "450 GB/s", scanner);
    if (scanner.take("model")) {
      const auto model = scanner.quoted();
      if (!model) return expected("a text in double quotes", scanner);
      node.model = *model;
      return {};
    }
    return expected("in, bus, index, count, memory, speed or model", scanner);
  }

  Status parse_count(uint32_t& count, Scanner& scanner) const {
    const auto number = scanner.number(1, kCountMax);
    if (!number) return expected("a count from 1 to 1048576", scanner);
    count = static_cast<uint32_t>(*number);
    return {};
  }

  Status parse_end(uint32_t& node, Scanner& scanner) const {
    const Scanner start = scanner;
    node = builder_.find(scanner.word());
    return node == kNoNode ? expected("the name of a node above", start) : Status();
  }

  Status parse_fact(Fact& fact, std::optional<uint64_t> value, const char* example, Scanner& scanner) const {
    if (!value) return expected(format("a positive number with a unit, as '%s'", example), scanner);
    fact.value = *value;
    const Scanner start = scanner;
    const auto origin = by_name<Origin, kOrigins>(scanner.word(), [](Origin o) { return origin_name(o); });
    if (!origin) return expected("assumed, file, hwloc, sysfs, nvml or measured", start);
    fact.origin = *origin;
    if (!scanner.take("spread")) return {};
    const auto spread = scanner.number(1, kSpreadMax);
    if (!spread) return expected("a percentage from 1 to 10000", scanner);
    fact.spread_percent = static_cast<uint32_t>(*spread);
    return {};
  }

  Status parse_link(Scanner& scanner) {
    Edge edge;
    TUTTI_TRY(parse_end(edge.a, scanner));
    TUTTI_TRY(parse_end(edge.b, scanner));
    const Scanner start = scanner;
    const auto kind = by_name<LinkKind, kLinkKinds>(scanner.word(), [](LinkKind k) { return kind_name(k); });
    if (!kind) return expected("inside, packages, pci, nvlink, xgmi or network", start);
    edge.kind = *kind;
    if (scanner.take("count")) TUTTI_TRY(parse_count(edge.count, scanner));
    TUTTI_TRY(parse_fact(edge.bytes_per_s, scanner.speed(), "450 GB/s", scanner));
    TUTTI_TRY(parse_fact(edge.latency_ns, scanner.time(), "500 ns", scanner));
    if (!scanner.at_end()) return expected("the end of the line", scanner);
    return checked(builder_.connect(edge));
  }

  GraphBuilder builder_;
  size_t line_number_ = 0;
};

}  // namespace

std::string print_graph(const Graph& graph) {
  std::string out = std::string(kTextTitle) + "\n";
  for (const Node& node : graph.nodes()) print_node(out, graph, node);
  for (const Edge& edge : graph.edges()) print_edge(out, graph, edge);
  return out + print_slices(graph.slices()) + print_calls(graph.calls());
}

Result<Graph> parse_graph(std::string_view text) {
  return Parser().run(text);
}

}  // namespace tutti::topology
