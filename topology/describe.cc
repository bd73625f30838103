#include "topology/describe.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "topology/assumed.h"
#include "topology/units.h"

namespace tutti::topology {
namespace {

constexpr uint64_t kHostsMax = 65'536;
constexpr uint64_t kPartsMax = 4096;  // of one kind in a host

struct Description {
  uint32_t hosts = 1;
  uint32_t gpus = 0;
  uint32_t packages = 1;
  uint32_t cores = 1;
  uint32_t nics = 0;
  Fact nic_speed = assumed::kNicSpeed;
  Fact pci_speed = assumed::kPciSpeed;
  Fact network_latency = assumed::kNetworkLatency;
  /// Links between GPUs: to a switch, or among themselves.
  std::optional<LinkKind> gpu_links;
  bool gpu_switch = false;
  Fact gpu_speed;
  bool rails = false;
  bool fat_tree = false;
  uint64_t down = 1;
  uint64_t up = 1;
  uint32_t leaf_hosts = 32;
  bool says_size = false;
  size_t line = 1;  // of the last part, for messages about the whole
};

class Reader {
 public:
  Result<Description> run(std::string_view text) {
    size_t line_number = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_number;
      line = line.substr(0, line.find('#'));
      while (!line.empty()) {
        const size_t comma = std::min(line.find(','), line.size());
        Scanner scanner(line.substr(0, comma));
        line.remove_prefix(std::min(comma + 1, line.size()));
        if (scanner.at_end()) continue;
        result_.line = line_number;
        TUTTI_TRY(read_part(scanner));
        if (!scanner.at_end()) return expected("a comma", scanner);
      }
    }
    if (!result_.says_size) return error("expected a size, as '8 gpus' or '2 hosts x 4 cores'");
    return result_;
  }

 private:
  Status error(const std::string& text) const {
    return {Code::kInvalidArgument, "line " + std::to_string(result_.line) + ": " + text};
  }
  Status expected(std::string_view what, const Scanner& scanner) const {
    return error("expected " + std::string(what) + ", found " + scanner.quote());
  }

  Status read_part(Scanner& scanner) {
    if (scanner.take("nvswitch")) return read_gpu_links(LinkKind::kNvlink, true, scanner);
    if (scanner.take("nvlink")) return read_gpu_links(LinkKind::kNvlink, false, scanner);
    if (scanner.take("xgmi")) return read_gpu_links(LinkKind::kXgmi, false, scanner);
    if (scanner.take("pcie")) return read_speed(result_.pci_speed, scanner);
    if (scanner.take("nic")) {
      result_.nics = 1;
      Scanner count = scanner;
      if (const auto number = count.number(1, kPartsMax); number && count.take("x")) {
        result_.nics = static_cast<uint32_t>(*number);
        scanner = count;
      }
      return read_speed(result_.nic_speed, scanner);
    }
    if (scanner.take("rails")) {
      result_.rails = true;
      return {};
    }
    if (scanner.take("one")) return scanner.take("switch") ? Status() : expected("'one switch'", scanner);
    if (scanner.take("fat")) return read_fat_tree(scanner);
    if (scanner.take("leaf")) {
      if (!read_number(result_.leaf_hosts, kHostsMax, scanner) ||
          !(scanner.take("hosts") || scanner.take("host"))) {
        return expected("'leaf N hosts'", scanner);
      }
      return {};
    }
    if (scanner.take("latency")) {
      const auto time = scanner.time();
      if (!time) return expected("a time, as '2 us'", scanner);
      result_.network_latency = {*time, Origin::kFile};
      return {};
    }
    return read_size(scanner);
  }

  Status read_size(Scanner& scanner) {
    uint32_t number = 0;
    const Scanner start = scanner;
    if (!read_number(number, kHostsMax, scanner)) {
      return expected("a part of a machine, as '8 gpus' or 'nvswitch 450 GB/s'", start);
    }
    if (scanner.take("hosts") || scanner.take("host")) {
      result_.hosts = number;
      result_.says_size = true;
      if (scanner.at_end()) return {};
      if (!scanner.take("x") || !read_number(number, kPartsMax, scanner)) {
        return expected("'x' and a number", scanner);
      }
    }
    if (number > kPartsMax) return error("more than 4096 parts of one kind in a host");
    if (scanner.take("gpus") || scanner.take("gpu")) {
      result_.gpus = number;
    } else if (scanner.take("packages") || scanner.take("package")) {
      result_.packages = number;
    } else if (scanner.take("cores") || scanner.take("core")) {
      result_.cores = number;
    } else {
      return expected("hosts, gpus, packages or cores", scanner);
    }
    result_.says_size = true;
    return {};
  }

  static bool read_number(uint32_t& number, uint64_t most, Scanner& scanner) {
    const auto value = scanner.number(1, most);
    if (value) number = static_cast<uint32_t>(*value);
    return value.has_value();
  }

  Status read_gpu_links(LinkKind kind, bool through_switch, Scanner& scanner) {
    if (result_.gpu_links) return error("a second kind of link between GPUs");
    result_.gpu_links = kind;
    result_.gpu_switch = through_switch;
    return read_speed(result_.gpu_speed, scanner);
  }

  Status read_speed(Fact& fact, Scanner& scanner) const {
    const auto speed = scanner.speed();
    if (!speed || *speed == 0) return expected("a positive speed, as '450 GB/s'", scanner);
    fact = {*speed, Origin::kFile};
    return {};
  }

  Status read_fat_tree(Scanner& scanner) {
    constexpr uint64_t kRatioMax = 1000;
    const Scanner start = scanner;
    if (scanner.take("tree")) {
      const std::string_view ratio = scanner.word();  // "2:1"
      const size_t colon = std::min(ratio.find(':'), ratio.size());
      const auto down = Scanner(ratio.substr(0, colon)).number(1, kRatioMax);
      const auto up = Scanner(ratio.substr(std::min(colon + 1, ratio.size()))).number(1, kRatioMax);
      if (down && up) {
        result_.fat_tree = true;
        result_.down = *down;
        result_.up = *up;
        return {};
      }
    }
    return expected("'fat tree N:M'", start);
  }

  Description result_;
};

/// Builds the hosts, then the network. The first refusal stays.
class Maker {
 public:
  explicit Maker(const Description& description) : d_(description) {}

  Result<Graph> run() {
    nics_.resize(d_.hosts);
    for (uint32_t host = 0; host < d_.hosts; ++host) {
      add_host(host);
      if (!status_) return failure();
    }
    if (d_.hosts > 1) add_network();
    if (!status_) return failure();
    return std::move(builder_).finish();
  }

 private:
  Status failure() const {
    return {Code::kInvalidArgument, format("line %zu: ", d_.line) + std::string(status_.text())};
  }

  uint32_t add(NodeKind kind, const std::string& name, uint32_t parent, int32_t os_index = -1,
               Fact speed = {}) {
    Node node;
    node.kind = kind;
    node.name = name;
    node.parent = parent;
    node.os_index = os_index;
    node.bytes_per_s = speed;
    const auto index = builder_.add(std::move(node));
    if (!index && status_) status_ = index.status();
    return index ? *index : 0;
  }

  void connect(uint32_t a, uint32_t b, LinkKind kind, Fact speed, Fact latency) {
    if (!status_) return;
    Edge edge;
    edge.a = a;
    edge.b = b;
    edge.kind = kind;
    edge.bytes_per_s = speed;
    edge.latency_ns = latency;
    status_ = builder_.connect(edge);
  }

  void add_host(uint32_t host) {
    prefix_ = d_.hosts > 1 ? "h" + std::to_string(host) + "/" : "";
    const uint32_t top = add(NodeKind::kHost, d_.hosts > 1 ? "h" + std::to_string(host) : "host", kNoNode);
    std::vector<uint32_t> numas;
    for (uint32_t p = 0; p < d_.packages; ++p) {
      const uint32_t package = add(NodeKind::kPackage, prefix_ + "package" + std::to_string(p), top);
      numas.push_back(
          add(NodeKind::kNuma, prefix_ + "numa" + std::to_string(p), package, static_cast<int32_t>(p)));
      connect(package, numas.back(), LinkKind::kInside, assumed::kNumaSpeed, assumed::kNumaLatency);
      for (uint32_t q = 0; q < p; ++q) {
        connect(builder_.nodes()[numas[q]].parent, package, LinkKind::kPackages, assumed::kPackagesSpeed,
                assumed::kPackagesLatency);
      }
    }
    // On many hosts the cores would be most of the graph, and no plan between GPUs looks at them.
    if (d_.gpus == 0 || d_.hosts == 1) add_cores(numas);
    add_devices(host, numas, top);
  }

  void add_cores(const std::vector<uint32_t>& numas) {
    std::vector<uint32_t> caches;
    for (uint32_t p = 0; p < d_.packages; ++p) {
      caches.push_back(add(NodeKind::kL3, prefix_ + "l3." + std::to_string(p), numas[p]));
      connect(numas[p], caches.back(), LinkKind::kInside, assumed::kL3Speed, assumed::kL3Latency);
    }
    for (uint32_t c = 0; c < d_.cores; ++c) {
      const uint32_t cache = caches[uint64_t{c} * d_.packages / d_.cores];
      const uint32_t core =
          add(NodeKind::kCore, prefix_ + "core" + std::to_string(c), cache, static_cast<int32_t>(c));
      connect(cache, core, LinkKind::kInside, assumed::kCoreSpeed, assumed::kCoreLatency);
    }
  }

  /// GPUs and NICs below PCI switches, as many switches as can have equally many of both.
  void add_devices(uint32_t host, const std::vector<uint32_t>& numas, uint32_t top) {
    const uint32_t groups = d_.gpus > 0 && d_.nics > 0 ? std::gcd(d_.gpus, d_.nics) : 0;
    std::vector<uint32_t> gpus;
    const auto place = [&](uint32_t number, uint32_t count) {
      if (groups > 0)
        return switch_of(static_cast<uint32_t>(uint64_t{number} * groups / count), groups, numas);
      return numas[uint64_t{number} * d_.packages / count];
    };
    for (uint32_t g = 0; g < d_.gpus && status_; ++g) {
      const uint32_t above = place(g, d_.gpus);
      gpus.push_back(
          add(NodeKind::kGpu, prefix_ + "gpu" + std::to_string(g), above, static_cast<int32_t>(g)));
      connect(above, gpus.back(), LinkKind::kPci, d_.pci_speed, assumed::kPciLatency);
    }
    for (uint32_t n = 0; n < d_.nics && status_; ++n) {
      const uint32_t above = place(n, d_.nics);
      nics_[host].push_back(add(NodeKind::kNic, prefix_ + "nic" + std::to_string(n), above,
                                static_cast<int32_t>(n), d_.nic_speed));
      connect(above, nics_[host].back(), LinkKind::kPci, d_.pci_speed, assumed::kPciLatency);
    }
    if (d_.gpu_links) connect_gpus(gpus, top);
  }

  uint32_t switch_of(uint32_t group, uint32_t groups, const std::vector<uint32_t>& numas) {
    const std::string name = prefix_ + "switch" + std::to_string(group);
    if (const uint32_t known = builder_.find(name); known != kNoNode) return known;
    const uint32_t numa = numas[uint64_t{group} * d_.packages / groups];
    const uint32_t index = add(NodeKind::kPciSwitch, name, numa);
    connect(numa, index, LinkKind::kPci, d_.pci_speed, assumed::kPciLatency);
    return index;
  }

  void connect_gpus(const std::vector<uint32_t>& gpus, uint32_t top) {
    const Fact latency = *d_.gpu_links == LinkKind::kNvlink ? assumed::kNvlinkLatency : assumed::kXgmiLatency;
    if (d_.gpu_switch) {
      const uint32_t middle = add(NodeKind::kNvswitch, prefix_ + "nvswitch", top);
      for (const uint32_t gpu : gpus) connect(gpu, middle, *d_.gpu_links, d_.gpu_speed, latency);
      return;
    }
    if (gpus.size() < 2) return;
    Fact speed = d_.gpu_speed;
    speed.value = std::max<uint64_t>(1, speed.value / (gpus.size() - 1));
    for (size_t i = 0; i < gpus.size(); ++i) {
      for (size_t j = 0; j < i; ++j) connect(gpus[j], gpus[i], *d_.gpu_links, speed, latency);
    }
  }

  void add_network() {
    if (d_.nics == 0) {
      // Hosts that nothing joins would be no cluster.
      for (uint32_t host = 0; host < d_.hosts && status_; ++host) add_assumed_nic(host);
    }
    const uint32_t rails = d_.rails ? std::max(d_.nics, 1u) : 1;
    const uint32_t leaf_hosts = d_.fat_tree ? d_.leaf_hosts : d_.hosts;
    const uint32_t leaves = (d_.hosts + leaf_hosts - 1) / leaf_hosts;
    const bool has_spine = leaves > 1 || rails > 1;
    const uint32_t spine = has_spine ? add(NodeKind::kFabric, "spine", kNoNode) : kNoNode;
    for (uint32_t leaf = 0; leaf < leaves && status_; ++leaf) {
      for (uint32_t rail = 0; rail < rails && status_; ++rail) {
        add_leaf({leaf * leaf_hosts, std::min(d_.hosts, (leaf + 1) * leaf_hosts)}, leaf, rail, spine);
      }
    }
  }

  void add_assumed_nic(uint32_t host) {
    const std::string prefix = "h" + std::to_string(host) + "/";
    const uint32_t numa = builder_.find(prefix + "numa0");
    nics_[host].push_back(add(NodeKind::kNic, prefix + "nic0", numa, 0, assumed::kNicSpeed));
    connect(numa, nics_[host].back(), LinkKind::kPci, d_.pci_speed, assumed::kPciLatency);
  }

  void add_leaf(std::pair<uint32_t, uint32_t> hosts, uint32_t leaf, uint32_t rail, uint32_t spine) {
    std::string name = "leaf" + std::to_string(leaf);
    if (d_.rails) name += ".rail" + std::to_string(rail);
    const uint32_t node = add(NodeKind::kFabric, name, kNoNode);
    uint64_t down = 0;
    Fact speed;
    for (uint32_t host = hosts.first; host < hosts.second; ++host) {
      for (uint32_t n = 0; n < nics_[host].size(); ++n) {
        if (d_.rails && n != rail) continue;
        speed = builder_.nodes()[nics_[host][n]].bytes_per_s;
        connect(nics_[host][n], node, LinkKind::kNetwork, speed, d_.network_latency);
        down += speed.value;
      }
    }
    if (spine == kNoNode) return;
    speed.value = std::max<uint64_t>(1, down / d_.down * d_.up);
    connect(node, spine, LinkKind::kNetwork, speed, d_.network_latency);
  }

  const Description& d_;
  GraphBuilder builder_;
  Status status_;
  std::string prefix_;
  std::vector<std::vector<uint32_t>> nics_;  // of each host
};

}  // namespace

Result<Graph> parse_description(std::string_view text) {
  const auto description = Reader().run(text);
  if (!description) return description.status();
  return Maker(*description).run();
}

}  // namespace tutti::topology
