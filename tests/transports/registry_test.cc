// Goal: every rank chooses the same transport, the cheapest one; a wrong name is an error that helps.
#include "transports/registry.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/transports/mesh.h"

namespace tutti::test {
namespace {

TEST(RegistryTest, AnUnknownNameIsAnErrorThatListsTheNames) {
  Config config;
  config.transport = "tpc";
  const auto entries = network_transports(config);
  ASSERT_FALSE(entries.is_ok());
  EXPECT_EQ(entries.status().code(), Code::kInvalidArgument);
  for (const char* part : {"TUTTI_TRANSPORT", "\"tpc\"", "tcp"})
    EXPECT_NE(entries.status().text().find(part), std::string::npos) << entries.status().text();
}

TEST(RegistryTest, ANameLeavesThatTransportAlone) {
  Config config;
  EXPECT_GE(network_transports(config)->size(), 1u);
  config.transport = "tcp";
  const auto entries = network_transports(config);
  ASSERT_TRUE(entries.is_ok()) << entries.status().text();
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_STREQ((*entries)[0]->name, "tcp");
}

TEST(RegistryTest, TheCheapestIsChosenAndTheFirstOfEquals) {
  const LinkCost slow{.latency_us = 20, .bytes_per_us = 1000};
  const LinkCost fast{.latency_us = 2, .bytes_per_us = 10'000};
  const std::optional<LinkCost> costs[] = {std::nullopt, slow, fast, fast};
  EXPECT_EQ(choose_transport(costs), 2u);
  EXPECT_EQ(choose_transport(std::span(costs).first(1)), std::nullopt);
}

TEST(RegistryTest, SharedMemoryCostsLeastOnOneHost) {
  const RankDescription a{.rank = 0, .host = 1, .machine = 1};
  const RankDescription near{.rank = 1, .host = 1, .machine = 1};
  const RankDescription far{.rank = 2, .host = 2, .machine = 2};
  for (const auto& [other, name] : {std::pair(near, "shm"), std::pair(far, "tcp")}) {
    std::vector<std::optional<LinkCost>> costs;
    for (const TransportEntry& entry : transports()) costs.push_back((*entry.open({}))->reach(a, other));
    const auto chosen = choose_transport(costs);
    ASSERT_TRUE(chosen);
    EXPECT_STREQ(transports()[*chosen].name, name);
  }
}

TEST(RegistryTest, ReachIsSymmetric) {
  const RankDescription ranks[] = {{.rank = 0, .host = 1, .machine = 1, .process = 1},
                                   {.rank = 1, .host = 1, .machine = 1, .process = 1},
                                   {.rank = 2, .host = 2, .machine = 1, .process = 2},
                                   {.rank = 3, .host = 3, .machine = 3, .process = 3}};
  for (const TransportCase& one : transport_cases()) {
    const auto transport = one.entry->open({.rank_count = 4, .config = one.config});
    ASSERT_TRUE(transport.is_ok()) << transport.status().text();
    for (const RankDescription& a : ranks) {
      for (const RankDescription& b : ranks) {
        const auto forth = (*transport)->reach(a, b);
        const auto back = (*transport)->reach(b, a);
        ASSERT_EQ(forth.has_value(), back.has_value()) << one.name;
        if (!forth) continue;
        EXPECT_EQ(forth->microseconds(1000), back->microseconds(1000)) << one.name;
      }
    }
  }
}

TEST(RegistryTest, ADifferentSettingIsNamedWithRankAndValues) {
  Config plain;
  Config other;
  other.tls = true;
  EXPECT_TRUE(compare_settings(3, agreed_values(plain), agreed_values(plain)).is_ok());
  EXPECT_EQ(compare_settings(3, agreed_values(other), agreed_values(plain)).text(),
            "TUTTI_TLS is 1 on rank 3 and 0 on rank 0: it must be the same on all ranks");
  plain.transport = "tcp";
  EXPECT_EQ(compare_settings(1, agreed_values(plain), agreed_values({})).text(),
            "TUTTI_TRANSPORT is tcp on rank 1 and not set on rank 0: it must be the same on all ranks");
}

}  // namespace
}  // namespace tutti::test
