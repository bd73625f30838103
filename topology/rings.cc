#include "topology/rings.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

namespace tutti::topology {
namespace {

constexpr size_t kPartsMax = 24;
constexpr size_t kRingsMax = 16;
constexpr uint32_t kStepsOfRing = 4000;
constexpr size_t kSpeedsMax = 12;

/// The host without links between GPUs: the second way between two GPUs.
Graph without_gpu_links(const Graph& host) {
  GraphBuilder builder;
  for (const Node& node : host.nodes()) (void)builder.add(node).is_ok();
  for (const Edge& edge : host.edges()) {
    Edge copy = edge;
    // The edge stays, so that edges keep their numbers, but is too slow to be used.
    if (edge.kind == LinkKind::kNvlink || edge.kind == LinkKind::kXgmi) copy.bytes_per_s.value = 1;
    (void)builder.connect(copy).is_ok();
  }
  return std::move(builder).finish();
}

struct Way {
  std::vector<uint32_t> arcs;
  uint64_t bytes_per_s = 0;
  uint64_t latency_ns = 0;
};

Way way_of(const Graph& host, const Path& path) {
  Way way;
  way.bytes_per_s = path.bytes_per_s;
  way.latency_ns = path.latency_ns;
  for (size_t i = 0; i < path.edges.size(); ++i)
    way.arcs.push_back(Loads::arc(host, path.edges[i], path.nodes[i]));
  return way;
}

class Search {
 public:
  Search(const Graph& host, std::span<const uint32_t> parts)
      : host_(host), parts_(parts), count_(parts.size()) {
    const Graph slow = without_gpu_links(host);
    ways_.resize(count_ * count_);
    for (size_t a = 0; a < count_; ++a) {
      WidestPaths fast_paths(host, parts[a]);
      WidestPaths slow_paths(slow, parts[a]);
      for (size_t b = 0; b < count_; ++b) {
        if (a == b) continue;
        auto& ways = ways_[a * count_ + b];
        const auto first = fast_paths.to(parts[b]);
        if (first) ways.push_back(way_of(host, *first));
        const auto second = slow_paths.to(parts[b]);
        if (second && second->bytes_per_s > 1 && second->edges != first->edges)
          ways.push_back(way_of(host, *second));
      }
    }
  }

  HostRings run() {
    HostRings best;
    for (const uint64_t speed : speeds()) {
      HostRings found = rings_at(speed);
      // More rings are more steps at once and smaller pieces. They must gain an eighth.
      if (found.bytes_per_s > best.bytes_per_s + best.bytes_per_s / 8) best = std::move(found);
    }
    return best;
  }

 private:
  /// Speeds to try for a ring, the fastest first: of the ways, and parts of them, which share links more
  /// evenly.
  std::vector<uint64_t> speeds() const {
    std::set<uint64_t, std::greater<>> all;
    for (const auto& ways : ways_) {
      for (const Way& way : ways) {
        for (uint64_t part = 1; part <= 4; ++part) all.insert(way.bytes_per_s / part);
      }
    }
    all.erase(0);
    std::vector<uint64_t> speeds(all.begin(), all.end());
    if (speeds.size() > kSpeedsMax) speeds.resize(kSpeedsMax);
    // The slowest way always gives a ring, if there is one.
    if (!all.empty() && speeds.back() != *all.rbegin()) speeds.push_back(*all.rbegin());
    return speeds;
  }

  HostRings rings_at(uint64_t speed) {
    HostRings result;
    rest_.clear();
    for (const Edge& edge : host_.edges()) rest_.insert(rest_.end(), 2, edge.bytes_per_s.value);
    Loads loads(host_);
    while (result.rings.size() < kRingsMax) {
      order_ = {0};
      taken_.clear();
      used_.assign(count_, false);
      used_[0] = true;
      steps_ = 0;
      if (!extend(speed)) break;
      for (const Way* way : taken_) {
        for (const uint32_t arc : way->arcs) loads.add(arc);
      }
      result.rings.push_back(order_);
    }
    result.complete = steps_ <= kStepsOfRing;
    uint32_t narrowest = 0;
    if (!result.rings.empty()) result.bytes_per_s = loads.speed(&narrowest) * result.rings.size();
    return result;
  }

  /// Depth first: the way with the most room, then the nearest part, then the first.
  bool extend(uint64_t speed) {
    const uint32_t at = order_.back();
    if (order_.size() == count_) return close(at, speed);
    struct Step {
      uint64_t room;
      uint64_t latency;
      uint32_t to;
      const Way* way;
    };
    std::vector<Step> steps;
    for (uint32_t to = 1; to < count_; ++to) {
      if (used_[to]) continue;
      for (const Way& way : ways_[at * count_ + to]) {
        const uint64_t room = room_of(way);
        if (room >= speed) steps.push_back({room, way.latency_ns, to, &way});
      }
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
      return a.room != b.room ? a.room > b.room : a.latency < b.latency;
    });
    for (const Step& step : steps) {
      if (++steps_ > kStepsOfRing) return false;
      take(*step.way, speed);
      order_.push_back(step.to);
      used_[step.to] = true;
      if (extend(speed)) return true;
      used_[step.to] = false;
      order_.pop_back();
      give_back(speed);
    }
    return false;
  }

  bool close(uint32_t at, uint64_t speed) {
    for (const Way& way : ways_[at * count_]) {
      if (room_of(way) < speed) continue;
      take(way, speed);
      return true;
    }
    return false;
  }

  uint64_t room_of(const Way& way) const {
    uint64_t room = UINT64_MAX;
    for (const uint32_t arc : way.arcs) room = std::min(room, rest_[arc]);
    return room;
  }
  void take(const Way& way, uint64_t speed) {
    for (const uint32_t arc : way.arcs) rest_[arc] -= speed;
    taken_.push_back(&way);
  }
  void give_back(uint64_t speed) {
    for (const uint32_t arc : taken_.back()->arcs) rest_[arc] += speed;
    taken_.pop_back();
  }

  const Graph& host_;
  std::span<const uint32_t> parts_;
  size_t count_;
  std::vector<std::vector<Way>> ways_;  // from a to b at a * count + b
  std::vector<uint64_t> rest_;          // of each arc
  std::vector<uint32_t> order_;
  std::vector<const Way*> taken_;
  std::vector<bool> used_;
  uint32_t steps_ = 0;
};

}  // namespace

void Loads::add(const Path& path) {
  for (size_t i = 0; i < path.edges.size(); ++i) add(arc(*graph_, path.edges[i], path.nodes[i]));
}

uint64_t Loads::speed(uint32_t* narrowest) const {
  uint64_t speed = UINT64_MAX;
  for (uint32_t arc = 0; arc < load_.size(); ++arc) {
    if (load_[arc] == 0) continue;
    const uint64_t share = graph_->edge(arc / 2).bytes_per_s.value / load_[arc];
    if (share < speed) {
      speed = share;
      *narrowest = arc / 2;
    }
  }
  return speed;
}

HostRings find_host_rings(const Graph& host, std::span<const uint32_t> parts) {
  HostRings result;
  if (parts.size() >= 2 && parts.size() <= kPartsMax) result = Search(host, parts).run();
  if (!result.rings.empty()) return result;
  result.complete = parts.size() <= kPartsMax;
  std::vector<uint32_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0u);
  result.rings.push_back(order);
  Loads loads(host);
  for (size_t i = 0; parts.size() > 1 && i < parts.size(); ++i) {
    const auto path = WidestPaths(host, parts[i]).to(parts[(i + 1) % parts.size()]);
    if (!path) return result;  // parts that nothing joins: speed 0
    loads.add(*path);
  }
  uint32_t narrowest = 0;
  result.bytes_per_s = loads.speed(&narrowest);
  return result;
}

}  // namespace tutti::topology
