// Config: what the environment may say, and what a user is told when it says something else.
#include "core/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "core/variables.h"

namespace tutti {
namespace {

/// An environment made of given variables.
Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// Goal: without variables, and with empty ones, every setting is its default.
TEST(ConfigTest, EmptyEnvironmentGivesDefaults) {
  const Config defaults;
  for (const auto& environment :
       {environment_of({}), environment_of({{"TUTTI_SLOTS", ""}, {"TUTTI_WAIT", ""}})}) {
    const auto config = read_config(environment);
    ASSERT_TRUE(config.is_ok()) << config.status().text();
    EXPECT_EQ(config->timeout_ms, defaults.timeout_ms);
    EXPECT_EQ(config->slots, defaults.slots);
    EXPECT_EQ(config->wait, WaitMode::kAuto);
    EXPECT_FALSE(config->reproducible);
    EXPECT_EQ(config->algorithm, "");
  }
}

// Goal: every variable reaches its field.
TEST(ConfigTest, EveryVariableIsRead) {
  const auto config = read_config(environment_of({{"TUTTI_TIMEOUT_MS", "1"},
                                                  {"TUTTI_SETUP_TIMEOUT_MS", "2"},
                                                  {"TUTTI_WAIT", "yield"},
                                                  {"TUTTI_SLOT_BYTES", "4096"},
                                                  {"TUTTI_SLOTS", "256"},
                                                  {"TUTTI_REPRODUCIBLE", "1"},
                                                  {"TUTTI_THREADS", "16"},
                                                  {"TUTTI_STRIPE_BYTES", "64"},
                                                  {"TUTTI_CHOICE_FILE", "/a/table"},
                                                  {"TUTTI_ALGORITHM", "ring"},
                                                  {"TUTTI_HEAP_BYTES", "1073741824"},
                                                  {"TUTTI_REFERENCE_BYTES", "0"},
                                                  {"TUTTI_PULL_BYTES", "65536"},
                                                  {"TUTTI_STREAMING_BYTES", "18446744073709551615"}}));
  ASSERT_TRUE(config.is_ok()) << config.status().text();
  EXPECT_EQ(config->timeout_ms, 1u);
  EXPECT_EQ(config->setup_timeout_ms, 2u);
  EXPECT_EQ(config->wait, WaitMode::kYield);
  EXPECT_EQ(config->slot_bytes, 4096u);
  EXPECT_EQ(config->slots, 256u);
  EXPECT_TRUE(config->reproducible);
  EXPECT_EQ(config->threads, 16u);
  EXPECT_EQ(config->stripe_bytes, 64u);
  EXPECT_EQ(config->choice_file, "/a/table");
  EXPECT_EQ(config->algorithm, "ring");
  EXPECT_EQ(config->heap_bytes, 1u << 30);
  EXPECT_EQ(config->reference_bytes, 0u);
  EXPECT_EQ(config->pull_bytes, 65536u);
  EXPECT_TRUE(config->pull_bytes_set);
  EXPECT_EQ(config->streaming_bytes, UINT64_MAX);
}

// Goal: an empty variable is not set.
TEST(ConfigTest, KnowsWhetherTheSizeOfPulledCallsIsSet) {
  EXPECT_FALSE(read_config(environment_of({}))->pull_bytes_set);
  EXPECT_FALSE(read_config(environment_of({{"TUTTI_PULL_BYTES", ""}}))->pull_bytes_set);
  EXPECT_TRUE(read_config(environment_of({{"TUTTI_PULL_BYTES", "0"}}))->pull_bytes_set);
}

// Goal: all modes of waiting have a name.
TEST(ConfigTest, EveryWaitModeHasAName) {
  const std::map<std::string, WaitMode> modes = {
      {"auto", WaitMode::kAuto}, {"spin", WaitMode::kSpin}, {"yield", WaitMode::kYield}};
  for (const auto& [name, mode] : modes) {
    const auto config = read_config(environment_of({{"TUTTI_WAIT", name}}));
    ASSERT_TRUE(config.is_ok()) << config.status().text();
    EXPECT_EQ(config->wait, mode) << name;
  }
}

// Goal: a value outside its range, or no number at all, is refused and not rounded, cut or ignored; the text
// names the variable and the value.
TEST(ConfigTest, WrongValuesAreRefusedByName) {
  const std::multimap<std::string, std::string> wrong = {{"TUTTI_TIMEOUT_MS", "0"},
                                                         {"TUTTI_TIMEOUT_MS", "-1"},
                                                         {"TUTTI_TIMEOUT_MS", "10s"},
                                                         {"TUTTI_TIMEOUT_MS", " 10"},
                                                         {"TUTTI_TIMEOUT_MS", "0x10"},
                                                         {"TUTTI_TIMEOUT_MS", "99999999999999999999"},
                                                         {"TUTTI_SETUP_TIMEOUT_MS", "never"},
                                                         {"TUTTI_SLOT_BYTES", "4095"},
                                                         {"TUTTI_SLOT_BYTES", "5000"},
                                                         {"TUTTI_SLOT_BYTES", "2097152"},
                                                         {"TUTTI_SLOTS", "2"},
                                                         {"TUTTI_SLOTS", "12"},
                                                         {"TUTTI_THREADS", "0"},
                                                         {"TUTTI_THREADS", "17"},
                                                         {"TUTTI_THREADS", "two"},
                                                         {"TUTTI_STRIPE_BYTES", "63"},
                                                         {"TUTTI_REPRODUCIBLE", "yes"},
                                                         {"TUTTI_REPRODUCIBLE", "2"},
                                                         {"TUTTI_WAIT", "sleep"},
                                                         {"TUTTI_HEAP_BYTES", "1e9"},
                                                         {"TUTTI_REFERENCE_BYTES", "1.5"},
                                                         {"TUTTI_STREAMING_BYTES", "+1"}};
  for (const auto& [name, value] : wrong) {
    const auto config = read_config(environment_of({{name, value}}));
    ASSERT_FALSE(config.is_ok()) << name << "=" << value;
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
    EXPECT_NE(config.status().text().find(name), std::string_view::npos) << config.status().text();
    EXPECT_NE(config.status().text().find('"' + value + '"'), std::string_view::npos)
        << config.status().text();
  }
}

// Goal: docs/configuration.md lists the variables that are read, and no other.
// Method: an environment that notes every name it is asked for.
TEST(ConfigTest, DocumentationListsEveryVariable) {
  std::set<std::string> asked;
  ASSERT_TRUE(read_config([&](const char* name) -> const char* {
                asked.insert(name);
                return nullptr;
              }).is_ok());
  std::set<std::string> listed;
  std::ifstream file(std::string(TUTTI_DOCS) + "/configuration.md");
  // A row names one variable, or ours and another library's.
  const std::regex row("^\\| `([A-Z][A-Z_]+)`(, `([A-Z][A-Z_]+)`)? \\|.*");
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (!std::regex_match(line, match, row)) continue;
    listed.insert(match[1]);
    if (match[3].matched) listed.insert(match[3]);
  }
  EXPECT_EQ(asked, listed);
  // The bootstrap's and the tools' own names stand in the text.
  file.clear();
  file.seekg(0);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (const std::string& name : known_variables()) {
    if (name == "TUTTI_PERF_WORKER") continue;
    EXPECT_NE(page.find('`' + name + '`'), std::string::npos) << name;
  }
}

// Goal: the three spellings of the interfaces have an order, and Gloo's whole names stay whole names.
TEST(ConfigTest, InterfaceFiltersOfOtherLibrariesAreTaken) {
  const auto filter = [](std::map<std::string, std::string> variables) {
    return read_config(environment_of(std::move(variables)))->socket_ifname;
  };
  EXPECT_EQ(filter({{"GLOO_SOCKET_IFNAME", "eth0,eth1"}}), "=eth0,eth1");
  EXPECT_EQ(filter({{"GLOO_SOCKET_IFNAME", "eth0"}, {"NCCL_SOCKET_IFNAME", "^docker"}}), "^docker");
  EXPECT_EQ(filter({{"TUTTI_SOCKET_IFNAME", "ib"}, {"NCCL_SOCKET_IFNAME", "eth"}}), "ib");
}

// Goal: a job script with NCCL's names for InfiniBand keeps its meaning.
TEST(ConfigTest, InfinibandIsSetByOurNamesAndByNccls) {
  const auto nccl = read_config(environment_of({{"NCCL_IB_HCA", "=mlx5_0:1"},
                                                {"NCCL_IB_GID_INDEX", "3"},
                                                {"NCCL_IB_SL", "2"},
                                                {"NCCL_IB_TC", "106"},
                                                {"NCCL_IB_TIMEOUT", "22"},
                                                {"NCCL_IB_DISABLE", "1"}}));
  ASSERT_TRUE(nccl.is_ok()) << nccl.status().text();
  EXPECT_EQ(nccl->infiniband.devices, "=mlx5_0:1");
  EXPECT_EQ(nccl->infiniband.gid_index, 3);
  EXPECT_EQ(nccl->infiniband.service_level, 2u);
  EXPECT_EQ(nccl->infiniband.traffic_class, 106u);
  EXPECT_EQ(nccl->infiniband.timeout, 22u);
  EXPECT_TRUE(nccl->infiniband.is_disabled);
  const auto ours = read_config(environment_of({{"NCCL_IB_HCA", "mlx5_0"},
                                                {"TUTTI_IB_HCA", "mlx5_1"},
                                                {"NCCL_IB_GID_INDEX", "3"},
                                                {"TUTTI_IB_GID_INDEX", "-1"},
                                                {"TUTTI_IB_PINNED_BYTES", "4096"}}));
  ASSERT_TRUE(ours.is_ok()) << ours.status().text();
  EXPECT_EQ(ours->infiniband.devices, "mlx5_1");
  EXPECT_EQ(ours->infiniband.gid_index, -1);
  EXPECT_EQ(ours->infiniband.pinned_bytes, 4096u);
  EXPECT_FALSE(read_config(environment_of({{"TUTTI_IB_TC", "256"}})).is_ok());
}

// Goal: a value that NCCL takes is taken, and a value that NCCL ignores is ignored, with a line in the log.
// Either once stopped the job.
TEST(ConfigTest, NcclsVariablesAreReadAsNcclReadsThem) {
  const auto read = [](const std::string& name, const std::string& value) {
    const auto config = read_config(environment_of({{name, value}}));
    EXPECT_TRUE(config.is_ok()) << name << "=" << value << ": " << config.status().text();
    return config ? config->infiniband : InfinibandConfig{};
  };
  EXPECT_EQ(read("NCCL_IB_TC", "0x6a").traffic_class, 106u);
  EXPECT_EQ(read("NCCL_IB_TC", "010").traffic_class, 8u) << "octal";
  EXPECT_EQ(read("NCCL_IB_TIMEOUT", " 22 ").timeout, 22u);
  EXPECT_EQ(read("NCCL_IB_GID_INDEX", "0x3").gid_index, 3);
  EXPECT_TRUE(read("NCCL_IB_DISABLE", "2").is_disabled);
  EXPECT_FALSE(read("NCCL_IB_DISABLE", "true").is_disabled);
  const InfinibandConfig defaults;
  testing::internal::CaptureStderr();
  EXPECT_EQ(read("NCCL_IB_GID_INDEX", "256").gid_index, defaults.gid_index);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_NE(logged.find("NCCL_IB_GID_INDEX is \"256\""), std::string::npos) << logged;
  for (const char* wrong : {"256", "-1", "a lot", "99999999999999999999"}) {
    EXPECT_EQ(read("NCCL_IB_TC", wrong).traffic_class, defaults.traffic_class) << wrong;
    EXPECT_EQ(read("NCCL_IB_TIMEOUT", wrong).timeout, defaults.timeout) << wrong;
  }
}

// Goal: what turns GPUDirect off in a job script for NCCL does so here.
TEST(ConfigTest, CardsDoNotAccessGpusWhereTheUserForbidsIt) {
  using Variables = std::map<std::string, std::string>;
  const auto is_on = [](const Variables& variables) {
    return read_config(environment_of(variables))->gpu_direct;
  };
  EXPECT_TRUE(is_on({}));
  EXPECT_TRUE(is_on({{"NCCL_NET_GDR_LEVEL", "SYS"}, {"NCCL_DMABUF_ENABLE", "1"}}));
  EXPECT_FALSE(is_on({{"NCCL_NET_GDR_LEVEL", "LOC"}}));
  EXPECT_FALSE(is_on({{"NCCL_DMABUF_ENABLE", "0"}}));
  EXPECT_FALSE(is_on({{"TUTTI_GPU_DIRECT", "0"}}));
  EXPECT_TRUE(is_on({{"TUTTI_GPU_DIRECT", "1"}, {"NCCL_DMABUF_ENABLE", "0"}})) << "ours decides";
  EXPECT_FALSE(read_config(environment_of({{"TUTTI_GPU_DIRECT", "yes"}})).is_ok());
}

// Goal: what CUDA's driver makes nothing of is no error of this library.
TEST(ConfigTest, QueuesOfADeviceAreReadAsTheDriverDoes) {
  const auto queues = [](const std::string& text) {
    return read_config(environment_of({{"CUDA_DEVICE_MAX_CONNECTIONS", text}}))->device_queues;
  };
  EXPECT_EQ(queues("1"), 1u);
  EXPECT_EQ(queues("32"), 32u);
  for (const char* text : {"", "0", "33", "many"}) EXPECT_EQ(queues(text), Config().device_queues) << text;
}

// Goal: launches leave a device to other processes only where the user says so: the launch that follows needs
// the driver, which waits for streams in some of its calls (a copy to pageable memory).
TEST(ConfigTest, DevicesAreLeftToOthersWhereTheUserSaysSo) {
  using Variables = std::map<std::string, std::string>;
  const auto yields = [](const Variables& variables) {
    return read_config(environment_of(variables))->gpu_yield;
  };
  EXPECT_FALSE(yields({}));
  EXPECT_FALSE(yields({{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}}));
  EXPECT_TRUE(yields({{"TUTTI_GPU_YIELD", "1"}}));
  EXPECT_FALSE(read_config(environment_of({{"TUTTI_GPU_YIELD", "2"}})).is_ok());
}

TEST(ConfigTest, PortRangesAreReadOrRefused) {
  const auto config =
      read_config(environment_of({{"TUTTI_PORT_RANGE", "5000-65535"}, {"TUTTI_INSPECT_PORTS", "4800-4899"}}));
  ASSERT_TRUE(config.is_ok()) << config.status().text();
  EXPECT_EQ(config->port_first, 5000);
  EXPECT_EQ(config->port_last, 65535);
  EXPECT_EQ(config->inspect_first, 4800);
  EXPECT_EQ(config->inspect_last, 4899);
  for (const char* name : {"TUTTI_PORT_RANGE", "TUTTI_INSPECT_PORTS"}) {
    for (const char* wrong : {"5000", "0-10", "10-9", "1-65536", "1-2-3", "a-b", "5000-"}) {
      const auto refused = read_config(environment_of({{name, wrong}}));
      ASSERT_FALSE(refused.is_ok()) << wrong;
      EXPECT_NE(refused.status().text().find(name), std::string_view::npos);
    }
  }
}

// Goal: a key comes from the variable or from the file; a short one is refused without being repeated.
TEST(ConfigTest, KeysAreReadFromVariableOrFile) {
  const std::string path = testing::TempDir() + "tutti_config_test_key";
  std::ofstream(path) << "a key of many characters\n";
  EXPECT_EQ(read_config(environment_of({{"TUTTI_KEY_FILE", path}}))->key, "a key of many characters");
  EXPECT_EQ(read_config(environment_of({{"TUTTI_KEY_FILE", path}, {"TUTTI_KEY", "0123456789abcdef"}}))->key,
            "0123456789abcdef");
  std::remove(path.c_str());
  const auto missing = read_config(environment_of({{"TUTTI_KEY_FILE", path}}));
  ASSERT_FALSE(missing.is_ok());
  EXPECT_NE(missing.status().text().find(path), std::string_view::npos);
  const auto short_key = read_config(environment_of({{"TUTTI_KEY", "hunter2"}}));
  ASSERT_FALSE(short_key.is_ok());
  EXPECT_NE(short_key.status().text().find("TUTTI_KEY"), std::string_view::npos);
  EXPECT_EQ(short_key.status().text().find("hunter2"), std::string_view::npos);
}

// Goal: the process's environment is the one that is read.
TEST(ConfigTest, ProcessEnvironmentSeesVariables) {
  ASSERT_EQ(setenv("TUTTI_TEST_VARIABLE", "seen", 1), 0);
  EXPECT_STREQ(process_environment()("TUTTI_TEST_VARIABLE"), "seen");
  ASSERT_EQ(unsetenv("TUTTI_TEST_VARIABLE"), 0);
  EXPECT_EQ(process_environment()("TUTTI_TEST_VARIABLE"), nullptr);
}

}  // namespace
}  // namespace tutti
