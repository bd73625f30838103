// The drawing of a machine: boxes inside boxes, as parts lie in each other, and below them a bar for each
// switch between GPUs. Parts below one box stand in a row, so lines from GPUs to a bar cross no other part.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tools/tutti_topo/show.h"
#include "topology/units.h"
#include "topology/xml.h"

namespace tutti::tool {

using namespace topology;

namespace {

constexpr int kPad = 10;
constexpr int kHeader = 20;
constexpr int kLine = 14;
constexpr int kCharacter = 7;  // width of one, at most
constexpr int kBar = 34;
constexpr int kWires = 56;  // height of the space between parts and a bar
constexpr size_t kTextMax = 22;

constexpr const char* kStyle = R"(<style>
text{font:11px Helvetica,Arial,sans-serif;fill:#1b2733}.b{font-weight:600}.s{font-size:9.5px;fill:#566573}
rect{stroke-width:1;rx:5}
.host{fill:#fbfcfd;stroke:#9aa5b1}.package{fill:#eef3f8;stroke:#7b98b5}.numa{fill:#f8fbff;stroke:#a9c1da}
.cores{fill:#dbe9f6;stroke:#7b98b5}.bridge{fill:#fff;stroke:#c4cbd3;stroke-dasharray:3 2}
.switch{fill:#f4f1fa;stroke:#a394c6}.gpu{fill:#dff0d8;stroke:#6aa84f}.nic{fill:#fdebd0;stroke:#d68910}
.device{fill:#eee;stroke:#999}.nvswitch{fill:#b7dfa8;stroke:#4d8b31}.fabric{fill:#fad7a0;stroke:#b9770e}
line,path{stroke:#4d8b31;fill:none;stroke-width:1.4}.net{stroke:#b9770e}.cpu{stroke:#7b98b5;stroke-width:2}
</style>
)";

std::string cut(const std::string& text) {
  return text.size() <= kTextMax ? text : text.substr(0, kTextMax - 2) + "..";
}

struct Box {
  uint32_t node = kNoNode;
  std::string style;
  std::vector<std::string> lines;  // the first is bold
  std::vector<std::unique_ptr<Box>> parts;
  bool stacked = false;  // parts below each other instead of side by side
  int x = 0, y = 0, width = 0, height = 0;
};

/// Lays out one host.
class HostDrawing {
 public:
  explicit HostDrawing(const Graph& graph) : graph_(graph) {}

  std::string run(uint32_t host, int left, int top, int* width, int* height) {
    auto box = make_box(host);
    measure(*box);
    place(*box, left, top);
    const std::vector<uint32_t> bars = bars_of(host);
    const bool has_mesh = has_direct_links(host);
    box->height += bars.empty() ? 0 : kWires + kBar + kPad;
    box->height += has_mesh ? 2 * kWires : 0;
    *width = box->width;
    *height = box->height;
    write(*box);
    draw_packages();
    draw_bars(bars, *box);
    if (has_mesh) draw_mesh(box->y + box->height - 2 * kWires - kPad);
    return out_;
  }

  const Box* box_of(uint32_t node) const {
    const auto found = boxes_.find(node);
    return found == boxes_.end() ? nullptr : found->second;
  }

 private:
  std::unique_ptr<Box> make_box(uint32_t index) {
    const Node& node = graph_.node(index);
    auto box = std::make_unique<Box>();
    box->node = index;
    box->style = kind_name(node.kind);
    box->lines = lines_of(index);
    uint32_t direct_cores = 0;
    for (const uint32_t child : graph_.children_of(index)) {
      const NodeKind kind = graph_.node(child).kind;
      if (kind == NodeKind::kNvswitch) continue;
      if (kind == NodeKind::kCore || kind == NodeKind::kL3) {
        ++direct_cores;
      } else {
        box->parts.push_back(make_box(child));
      }
    }
    stack_devices(node.kind, *box);
    if (direct_cores > 0) {
      auto cores = std::make_unique<Box>();
      cores->style = "cores";
      cores->lines = {processor_summary(graph_, index)};
      box->parts.insert(box->parts.begin(), std::move(cores));
    }
    return box;
  }

  /// Cards above GPUs below one PCI switch: half as wide, and still nothing below a GPU.
  void stack_devices(NodeKind kind, Box& box) const {
    const auto is_kind = [&](const auto& part, NodeKind wanted) {
      return part->parts.empty() && graph_.node(part->node).kind == wanted;
    };
    size_t cards = 0;
    size_t gpus = 0;
    for (const auto& part : box.parts) {
      cards += is_kind(part, NodeKind::kNic) ? 1 : 0;
      gpus += is_kind(part, NodeKind::kGpu) ? 1 : 0;
    }
    if (kind != NodeKind::kPciSwitch || gpus != 1 || cards == 0 || cards + gpus != box.parts.size()) return;
    box.stacked = true;
    std::stable_partition(box.parts.begin(), box.parts.end(),
                          [&](const auto& part) { return is_kind(part, NodeKind::kNic); });
  }

  std::vector<std::string> lines_of(uint32_t index) const {
    const Node& node = graph_.node(index);
    std::vector<std::string> lines = {cut(node.name)};
    if (node.kind == NodeKind::kPciSwitch)
      lines[0] = "PCI switch " + (node.bus_id.empty() ? node.name : node.bus_id);
    if (!node.model.empty()) lines.push_back(cut(node.model));
    if (node.memory_bytes > 0)
      lines.push_back(format("%llu GB", static_cast<unsigned long long>(node.memory_bytes / 1'000'000'000)));
    if (node.bytes_per_s.value > 0)
      lines.push_back("port " + round_speed(node.bytes_per_s.value) + mark(node.bytes_per_s));
    const Edge* up = link_up(graph_, index);
    if (up != nullptr && up->kind == LinkKind::kPci && node.kind != NodeKind::kBridge) {
      lines.push_back("PCIe " + round_speed(up->bytes_per_s.value) + mark(up->bytes_per_s));
    }
    return lines;
  }

  /// Assumed numbers carry a question mark.
  static std::string mark(const Fact& fact) { return fact.origin == Origin::kAssumed ? " ?" : ""; }

  static void measure(Box& box) {
    int text = 0;
    for (const std::string& line : box.lines)
      text = std::max(text, static_cast<int>(line.size()) * kCharacter + 2 * kPad);
    box.height = kHeader + static_cast<int>(box.lines.size() - 1) * kLine + kPad / 2;
    if (box.parts.empty()) {
      box.width = text;
      return;
    }
    int across = 0;
    int along = 0;  // the direction in which parts follow each other
    for (const auto& part : box.parts) {
      measure(*part);
      across = std::max(across, box.stacked ? part->width : part->height);
      along += (box.stacked ? part->height : part->width) + kPad;
    }
    box.width = std::max(text, box.stacked ? across + 2 * kPad : along + kPad);
    box.height += box.stacked ? along : across + kPad;
  }

  void place(Box& box, int x, int y) {
    box.x = x;
    box.y = y;
    if (box.node != kNoNode) boxes_[box.node] = &box;
    int at = x + kPad;
    int top = y + kHeader + static_cast<int>(box.lines.size() - 1) * kLine + kPad / 2;
    for (const auto& part : box.parts) {
      if (box.stacked) part->width = box.width - 2 * kPad;
      place(*part, at, top);
      (box.stacked ? top : at) += (box.stacked ? part->height : part->width) + kPad;
    }
  }

  void write(const Box& box) {
    out_ += format("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", box.style.c_str(),
                   box.x, box.y, box.width, box.height);
    for (size_t i = 0; i < box.lines.size(); ++i) {
      out_ += format("<text class=\"%s\" x=\"%d\" y=\"%d\">", i == 0 ? "b" : "s", box.x + 8,
                     box.y + 15 + static_cast<int>(i) * kLine) +
              xml_escaped(box.lines[i]) + "</text>\n";
    }
    for (const auto& part : box.parts) write(*part);
  }

  std::vector<uint32_t> bars_of(uint32_t host) const {
    std::vector<uint32_t> bars;
    for (const uint32_t child : graph_.children_of(host)) {
      if (graph_.node(child).kind == NodeKind::kNvswitch) bars.push_back(child);
    }
    return bars;
  }

  bool is_mesh_link(const Edge& edge) const {
    return (edge.kind == LinkKind::kNvlink || edge.kind == LinkKind::kXgmi) &&
           graph_.node(edge.a).kind == NodeKind::kGpu && graph_.node(edge.b).kind == NodeKind::kGpu;
  }

  bool has_direct_links(uint32_t host) const {
    return std::any_of(graph_.edges().begin(), graph_.edges().end(), [&](const Edge& edge) {
      return is_mesh_link(edge) && graph_.around(edge.a, NodeKind::kHost) == host;
    });
  }

  void draw_packages() {
    for (const Edge& edge : graph_.edges()) {
      if (edge.kind != LinkKind::kPackages) continue;
      const Box* a = box_of(edge.a);
      const Box* b = box_of(edge.b);
      if (a == nullptr || b == nullptr || b->x != a->x + a->width + kPad) continue;
      out_ += format("<line class=\"cpu\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", a->x + a->width,
                     a->y + 12, b->x, b->y + 12);
    }
  }

  /// The bars stand in one row, each below its GPUs as far as the bars before allow.
  void draw_bars(const std::vector<uint32_t>& bars, const Box& host) {
    const int y = host.y + host.height - kBar - kPad;
    int free_from = host.x + kPad;
    for (const uint32_t bar : bars) {
      int left = host.x + host.width;
      int right = free_from;
      std::string speed;
      for (const Link& link : graph_.links_of(bar)) {
        const Box* gpu = box_of(link.other);
        if (gpu == nullptr) continue;
        left = std::min(left, gpu->x);
        right = std::max(right, gpu->x + gpu->width);
        const Edge& edge = graph_.edge(link.edge);
        speed = (edge.count > 1 ? format("%u links, ", edge.count) : "") +
                round_speed(edge.bytes_per_s.value) + mark(edge.bytes_per_s) + " each GPU, each way";
        const int x = gpu->x + gpu->width / 2;
        out_ += format("<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", x, gpu->y + gpu->height, x, y);
      }
      left = std::max(left, free_from);
      const Node& node = graph_.node(bar);
      const std::string name = node.count > 1 ? format("%u NVSwitches", node.count) : "NVSwitch";
      out_ += format("<rect class=\"nvswitch\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", left, y,
                     std::max(right - left, 120), kBar);
      out_ += format("<text class=\"b\" x=\"%d\" y=\"%d\">%s</text>\n", left + 8, y + 14, name.c_str());
      out_ += format("<text class=\"s\" x=\"%d\" y=\"%d\">%s</text>\n", left + 8, y + 27, speed.c_str());
      free_from = left + std::max(right - left, 120) + kPad;
    }
  }

  /// Direct links between GPUs as curves below, deeper for GPUs that are farther apart.
  void draw_mesh(int y) {
    int farthest = 1;
    for (const auto& [node, box] : boxes_) farthest = std::max(farthest, box->x);
    std::string speed;
    for (const Edge& edge : graph_.edges()) {
      const Box* a = box_of(edge.a);
      const Box* b = box_of(edge.b);
      if (!is_mesh_link(edge) || a == nullptr || b == nullptr) continue;
      const int from = a->x + a->width / 2;
      const int to = b->x + b->width / 2;
      const int depth = 30 + 150 * std::abs(to - from) / farthest;
      const int bottom = std::max(a->y + a->height, b->y + b->height);
      out_ += format("<path d=\"M%d %d C%d %d %d %d %d %d\"/>\n", from, a->y + a->height, from,
                     bottom + depth, to, bottom + depth, to, b->y + b->height);
      speed = (edge.count > 1 ? format("%u ", edge.count) : std::string()) +
              (edge.kind == LinkKind::kXgmi ? "xGMI, " : "NVLink, ") + round_speed(edge.bytes_per_s.value) +
              mark(edge.bytes_per_s);
    }
    out_ += format("<text class=\"s\" x=\"%d\" y=\"%d\">between GPUs: %s each way and pair</text>\n",
                   boxes_.begin()->second->x + kPad, y + 2 * kWires, speed.c_str());
  }

  const Graph& graph_;
  std::string out_;
  std::map<uint32_t, const Box*> boxes_;
};

}  // namespace

std::string draw_svg(const Graph& graph) {
  const std::vector<uint32_t> hosts = graph.of_kind(NodeKind::kHost);
  const std::vector<uint32_t> fabrics = graph.of_kind(NodeKind::kFabric);
  std::string body;
  int width = 240;
  int y = kPad;
  if (!fabrics.empty()) {
    uint64_t up = 0;
    for (const Edge& edge : graph.edges()) {
      const bool joins =
          graph.node(edge.a).kind == NodeKind::kFabric && graph.node(edge.b).kind == NodeKind::kFabric;
      if (joins) up += edge.bytes_per_s.value;
    }
    body += format("<rect class=\"fabric\" x=\"%d\" y=\"%d\" width=\"340\" height=\"%d\"/>\n", kPad, y, kBar);
    body += format("<text class=\"b\" x=\"%d\" y=\"%d\">network: %zu switch%s, %zu hosts</text>\n", kPad + 8,
                   y + 14, fabrics.size(), fabrics.size() == 1 ? "" : "es", hosts.size());
    const std::string top = up > 0 ? round_speed(up) + " between switches" : "one switch joins all hosts";
    body += format("<text class=\"s\" x=\"%d\" y=\"%d\">%s</text>\n", kPad + 8, y + 27, top.c_str());
    y += kBar + kPad;
  }
  std::string last;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string look = signature(graph, hosts[i]);
    if (look == last) continue;
    last = look;
    const auto alike = std::count_if(hosts.begin(), hosts.end(),
                                     [&](uint32_t host) { return signature(graph, host) == look; });
    int host_width = 0;
    int host_height = 0;
    body += HostDrawing(graph).run(hosts[i], kPad, y, &host_width, &host_height);
    y += host_height + kPad;
    width = std::max(width, host_width + 2 * kPad);
    if (alike > 1) {
      body += format("<text class=\"b\" x=\"%d\" y=\"%d\">%zu hosts alike</text>\n", kPad, y + 6,
                     static_cast<size_t>(alike));
      y += kHeader;
    }
  }
  body += format("<text class=\"s\" x=\"%d\" y=\"%d\">?: assumed. Speeds are for each direction.</text>\n",
                 kPad, y + 8);
  y += kHeader;
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
             width, y, width, y) +
         kStyle + "<rect x=\"0\" y=\"0\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" + body +
         "</svg>\n";
}

}  // namespace tutti::tool
