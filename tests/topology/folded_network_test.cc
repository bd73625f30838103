// Goal: a link between switches has as many messages as the routes of all hosts say.
#include "topology/folded_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "topology/describe.h"
#include "topology/routes.h"

namespace tutti::topology {
namespace {

/// Of the routes from each host's rank to the partner's: the most that an arc between switches carries, and
/// the longest latency of these arcs.
std::pair<float, double> count_all(Routes& routes, HostShift shift, uint32_t from, uint32_t to,
                                   uint32_t host) {
  const auto& hosts = routes.hosts();
  const auto is_switch = [&](uint32_t node) { return routes.graph().node(node).kind == NodeKind::kFabric; };
  std::map<uint32_t, float> messages;
  double longest_us = 0;
  for (uint32_t i = 0; i < hosts.size(); ++i) {
    const auto j = static_cast<uint32_t>(shift == HostShift::kAdd ? (i + host) % hosts.size() : i ^ host);
    std::vector<uint32_t> arcs;
    EXPECT_TRUE(routes.add_route(hosts[i].first_rank + from, hosts[j].first_rank + to, arcs));
    double us = 0;
    for (const uint32_t arc : arcs) {
      const Edge& edge = routes.graph().edge(arc / 2);
      if (!is_switch(edge.a) || !is_switch(edge.b)) continue;
      ++messages[arc];
      us += static_cast<double>(edge.latency_ns.value) / 1000;
    }
    longest_us = std::max(longest_us, us);
  }
  float most = 0;
  for (const auto& [arc, count] : messages) most = std::max(most, count);
  return {most, longest_us};
}

// Method: a rank of each host has its own card; all distances of two fat trees, with rails and without. The
// last leaf of the first one has fewer hosts.
TEST(FoldedNetworkTest, LoadsAreThoseOfTheRoutesOfAllHosts) {
  for (const std::string network :
       {"14 hosts x 2 gpus, nic 2 x 25 GB/s, leaf 4 hosts, fat tree 4:1",
        "16 hosts x 2 gpus, nic 2 x 25 GB/s, leaf 4 hosts, rails, fat tree 2:1"}) {
    const auto graph = parse_description(network);
    ASSERT_TRUE(graph) << graph.status().text();
    auto routes = Routes::of(*graph);
    ASSERT_TRUE(routes);
    const auto hosts = static_cast<uint32_t>(routes->hosts().size());
    for (const HostShift shift : {HostShift::kAdd, HostShift::kXor}) {
      if (shift == HostShift::kXor && hosts != 16) continue;
      for (uint32_t number = 4; number < 4 * hosts; ++number) {
        const uint32_t host = number / 4;
        const auto& way = routes->folded(hosts).way(*routes, shift, number / 2 % 2, number % 2, host);
        float most = 0;
        for (const auto& load : routes->folded(hosts).loads_of(way)) most = std::max(most, load.messages);
        EXPECT_TRUE(way.is_joined);
        EXPECT_EQ(std::pair(most, way.latency_us),
                  count_all(*routes, shift, number / 2 % 2, number % 2, host))
            << network << ", " << host << " hosts away";
      }
    }
  }
}

}  // namespace
}  // namespace tutti::topology
