// Detection from stand-ins: a tree of files in place of /sys, a table of functions in place of NVML, and
// texts in place of hwloc.
#include "topology/detect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "topology/kept.h"
#include "topology/nvml.h"
#include "topology/paths.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

/// A folder that ends with its object.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "tutti-sys-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name) << text << "\n";
  }
  void link(const std::string& name, const std::string& target) const {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    fs::create_symlink(path_ + "/" + target, path_ + "/" + name);
  }

 private:
  std::string path_;
};

void write_processors(const Folder& sys, uint32_t packages, uint32_t cores_of_package) {
  const uint32_t cores = packages * cores_of_package;
  sys.write("devices/system/cpu/online", format("0-%u", cores - 1));
  for (uint32_t c = 0; c < cores; ++c) {
    const uint32_t package = c / cores_of_package;
    const std::string ranges =
        format("%u-%u", package * cores_of_package, (package + 1) * cores_of_package - 1);
    const std::string cpu = "devices/system/cpu/cpu" + std::to_string(c);
    sys.write(cpu + "/topology/physical_package_id", std::to_string(package));
    // Two threads a core.
    sys.write(cpu + "/topology/core_id", std::to_string(c / 2));
    sys.write(cpu + "/cache/index3/shared_cpu_list", ranges);
    const std::string node = "devices/system/node/node" + std::to_string(package);
    sys.write(node + "/cpulist", ranges);
    sys.write(node + "/meminfo",
              format("Node %u MemTotal:       1000000 kB\nNode %u MemFree: 5 kB", package, package));
  }
}

/// A device below a root port and a switch of its own.
std::string write_device(const Folder& sys, uint32_t number, uint32_t slot, const std::string& class_code,
                         const std::string& vendor, const std::string& device) {
  const uint32_t base = number * 16;
  const std::string top = format("devices/pci0000:%02x", base);
  const std::string port = top + format("/0000:%02x:01.0", base);
  const std::string upper = port + format("/0000:%02x:00.0", base + 1);
  const std::string lower = upper + format("/0000:%02x:%02x.0", base + 2, slot);
  const std::string address = format("0000:%02x:00.0", base + 3 + slot);
  const std::string folder = lower + "/" + address;
  for (const std::string& part : {port, upper, lower, folder}) {
    sys.write(part + "/max_link_speed", "32.0 GT/s PCIe");
    sys.write(part + "/max_link_width", "16");
    // An idle GPU slows its link down. This must not count.
    sys.write(part + "/current_link_speed", "2.5 GT/s PCIe");
  }
  sys.write(folder + "/class", class_code);
  sys.write(folder + "/vendor", vendor);
  sys.write(folder + "/device", device);
  sys.write(folder + "/numa_node", std::to_string(number / 4));
  sys.link("bus/pci/devices/" + address, folder);
  return folder;
}

/// Eight GPUs and eight cards, each pair at a PCI switch, on two processors.
void write_eight_gpus(const Folder& sys) {
  write_processors(sys, 2, 8);
  for (uint32_t g = 0; g < 8; ++g) {
    write_device(sys, g, 0, "0x030200", "0x10de", "0x2330");
    const std::string card = write_device(sys, g, 1, "0x020700", "0x15b3", "0x1021");
    const std::string name = "mlx5_" + std::to_string(g);
    sys.write(card + "/infiniband/" + name + "/ports/1/rate", "400 Gb/sec (4X NDR)");
    sys.write(card + "/net/ib" + std::to_string(g) + "/speed", "-1");
  }
}

// The stand-in for NVML: eight GPUs with 18 links to four switches. NVML's functions have no argument for
// state.
struct FakeNvml {
  uint32_t gpu_count = 8;
  int init_error = 0;
  bool has_links = true;
  int running = 0;
};
FakeNvml fake_nvml;

uint32_t number_of(NvmlDevice device) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(device) - 1);
}

NvmlFunctions fake_functions() {
  NvmlFunctions f;
  f.init = [] {
    fake_nvml.running += fake_nvml.init_error == 0 ? 1 : 0;
    return fake_nvml.init_error;
  };
  f.shutdown = [] {
    --fake_nvml.running;
    return 0;
  };
  f.device_count = [](uint32_t* count) {
    *count = fake_nvml.gpu_count;
    return 0;
  };
  f.device_at = [](uint32_t index, NvmlDevice* device) {
    *device = reinterpret_cast<NvmlDevice>(uintptr_t{index} + 1);
    return 0;
  };
  f.pci_info = [](NvmlDevice device, NvmlPciInfo* info) {
    std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", number_of(device) * 16 + 3);
    return 0;
  };
  f.name = [](NvmlDevice, char* name, uint32_t bytes) {
    std::snprintf(name, bytes, "NVIDIA H100 80GB HBM3");
    return 0;
  };
  f.memory = [](NvmlDevice, NvmlMemory* memory) {
    memory->total = 80'000'000'000;
    return 0;
  };
  f.compute_capability = [](NvmlDevice, int* major, int* minor) {
    *major = 9;
    *minor = 0;
    return 0;
  };
  f.link_state = [](NvmlDevice, uint32_t, int* is_active) {
    *is_active = fake_nvml.has_links ? 1 : 0;
    return 0;
  };
  f.link_remote_pci = [](NvmlDevice, uint32_t link, NvmlPciInfo* info) {
    std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:C%u:00.0", link % 4);
    return 0;
  };
  f.link_remote_type = [](NvmlDevice, uint32_t, int* type) {
    *type = 2;
    return 0;
  };
  f.field_values = [](NvmlDevice, int, NvmlFieldValue* values) {
    values->error = values->field_id == 90 ? 0 : 3;
    values->value_type = 1;
    values->value.as_unsigned = 26'562;  // with the bits of the line coding
    return 0;
  };
  return f;
}

class FixedHwloc final : public HwlocSource {
 public:
  explicit FixedHwloc(std::string xml) : xml_(std::move(xml)) {}
  Result<std::string> machine_xml() override { return xml_; }

 private:
  std::string xml_;
};

class DetectTest : public testing::Test {
 protected:
  DetectTest() { fake_nvml = {}; }

  Imported detected(HwlocSource* hwloc = nullptr) {
    files_ = open_files(sys_.path());
    nvml_ = make_nvml_source(fake_functions());
    auto result =
        detect({.hwloc = hwloc, .files = files_.get(), .gpus = nvml_.get(), .cores = 3, .host_name = "box"});
    EXPECT_TRUE(result) << result.status().text();
    EXPECT_EQ(fake_nvml.running, 0) << "NVML was not shut down";
    return result ? std::move(*result) : Imported();
  }

  Folder sys_;
  std::unique_ptr<FileTree> files_;
  std::unique_ptr<GpuSource> nvml_;
};

// Goal: a machine of eight GPUs is known as its owner would draw it, without hwloc.
TEST_F(DetectTest, EightGpusFromFilesAndNvml) {
  write_eight_gpus(sys_);
  const auto [graph, notes] = detected();
  EXPECT_EQ(graph.node(0).name, "box");
  EXPECT_EQ(graph.of_kind(NodeKind::kPackage).size(), 2u);
  EXPECT_EQ(graph.of_kind(NodeKind::kCore).size(), 8u);
  EXPECT_EQ(graph.of_kind(NodeKind::kGpu).size(), 8u);
  EXPECT_EQ(graph.node(graph.find("numa1")).memory_bytes, 1'024'000'000u);
  EXPECT_EQ(graph.node(graph.find("gpu5")).model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(graph.node(graph.find("mlx5_3")).bytes_per_s, (Fact{50'000'000'000, Origin::kSysfs}));
  EXPECT_EQ(graph.node(graph.find("nvswitch")).count, 4u);

  const auto distance = [&](const char* a, const char* b) {
    return distance_text(graph, graph.find(a), graph.find(b));
  };
  EXPECT_EQ(distance("gpu0", "gpu7"), "NV18");
  EXPECT_EQ(distance("gpu0", "mlx5_0"), "PIX");
  EXPECT_EQ(distance("gpu0", "mlx5_1"), "NODE");
  EXPECT_EQ(distance("gpu0", "mlx5_7"), "SYS");
  EXPECT_EQ(WidestPaths(graph, graph.find("gpu0")).bytes_per_s(graph.find("gpu1")), 450'000'000'000u);
  const auto path = WidestPaths(graph, graph.find("gpu0")).to(graph.find("mlx5_0"));
  EXPECT_EQ(path->bytes_per_s, 63'015'384'608u);
  EXPECT_EQ(graph.edge(path->edges[0]).bytes_per_s.origin, Origin::kSysfs);
  EXPECT_THAT(notes, ElementsAre("hwloc is not used"));
}

// Goal: cores whose numbers begin anew in each cluster are told apart. Method: two clusters of four cores, by
// the files of new systems and of old ones.
TEST_F(DetectTest, ClustersMayNumberTheirCoresAlike) {
  fake_nvml.gpu_count = 0;
  sys_.write("devices/system/cpu/online", "0-7");
  for (const char* list : {"thread_siblings_list", "core_cpus_list"}) {
    for (int c = 0; c < 8; ++c) {
      const std::string topology = format("devices/system/cpu/cpu%d/topology/", c);
      sys_.write(topology + "physical_package_id", "0");
      sys_.write(topology + "core_id", std::to_string(c % 4));
      sys_.write(topology + list, std::to_string(c));
    }
    EXPECT_EQ(detected().graph.of_kind(NodeKind::kCore).size(), 8u) << list;
  }
}

// Goal: a port that is down has no part in its card's speed, and a card that comes back is noticed.
TEST_F(DetectTest, PortsThatAreDownDoNotCount) {
  write_processors(sys_, 1, 2);
  fake_nvml.gpu_count = 0;
  const std::string card = write_device(sys_, 0, 1, "0x020700", "0x15b3", "0x1021");
  const std::string ports = card + "/infiniband/mlx5_0/ports/";
  for (const char* port : {"1", "2"}) {
    sys_.write(ports + port + "/rate", "10 Gb/sec (4X SDR)");
    sys_.write(ports + port + "/state", "1: DOWN");
  }
  const auto speed = [&] {
    const Graph graph = detected().graph;
    return graph.node(graph.find("mlx5_0")).bytes_per_s;
  };
  EXPECT_EQ(speed().origin, Origin::kAssumed);
  const uint64_t down = machine_key(*files_, "");
  const uint64_t kind = fingerprint(detected().graph);
  sys_.write(ports + "1/rate", "400 Gb/sec (4X NDR)");
  sys_.write(ports + "1/state", "4: ACTIVE");
  EXPECT_EQ(speed(), (Fact{50'000'000'000, Origin::kSysfs}));
  EXPECT_NE(machine_key(*files_, ""), down) << "the kept graph would stay";
  EXPECT_EQ(fingerprint(detected().graph), kind) << "measurements of this machine hold";
}

TEST_F(DetectTest, WithoutNvmlTheLinksAreUnknownAndThisIsSaid) {
  write_eight_gpus(sys_);
  fake_nvml.init_error = 9;
  const auto [graph, notes] = detected();
  EXPECT_EQ(distance_text(graph, graph.find("gpu0"), graph.find("gpu7")), "SYS");
  EXPECT_THAT(notes, Contains(HasSubstr("links between GPUs are unknown: NVML does not start: its error 9")));
  EXPECT_THAT(notes, Contains(HasSubstr("only PCI counts")));
}

// Goal: it is known whether asking again may tell more. GPUs of another maker need no NVML.
TEST_F(DetectTest, AMachineIsCompleteIfAllItsSourcesHaveAnswered) {
  files_ = open_files(sys_.path());
  nvml_ = make_nvml_source(fake_functions());
  const auto is_complete = [&](HwlocSource* hwloc) {
    const auto machine = detect({.hwloc = hwloc, .files = files_.get(), .gpus = nvml_.get()});
    return machine && machine->is_complete;
  };
  FixedHwloc good(R"(<topology version="2.0"><object type="Machine" cpuset="0x1">
    <object type="PU" os_index="0" cpuset="0x1"/>
    <object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0302 [10de:2330] [0000:0000] a1"/>
  </object></topology>)");
  FixedHwloc bad("<topology version=\"3.0\"/>");
  EXPECT_TRUE(is_complete(&good));
  EXPECT_FALSE(is_complete(&bad));
  EXPECT_FALSE(is_complete(nullptr));
  fake_nvml.gpu_count = 0;
  EXPECT_FALSE(is_complete(&good)) << "a container may see fewer GPUs";
  fake_nvml.init_error = 9;
  EXPECT_FALSE(is_complete(&good)) << "a GPU of an unknown maker";
  const std::string device = write_device(sys_, 0, 0, "0x030200", "0x10de", "0x2330");
  EXPECT_FALSE(is_complete(&good));
  sys_.write(device + "/vendor", "0x1002");
  EXPECT_TRUE(is_complete(&good));
}

// A container may see the driver, but no PCI device.
TEST_F(DetectTest, GpusThatOnlyNvmlShowsAreAdded) {
  write_processors(sys_, 1, 4);
  const auto [graph, notes] = detected();
  EXPECT_EQ(graph.of_kind(NodeKind::kGpu).size(), 8u);
  EXPECT_EQ(distance_text(graph, graph.find("gpu0"), graph.find("gpu7")), "NV18");
  EXPECT_THAT(notes, Contains(HasSubstr("the system hides PCI devices")));
}

TEST_F(DetectTest, AMachineThatShowsNothingIsAssumedAndThisIsSaid) {
  fake_nvml.gpu_count = 0;
  const auto [graph, notes] = detected();
  EXPECT_EQ(graph.of_kind(NodeKind::kCore).size(), 3u);
  EXPECT_THAT(notes, Contains(HasSubstr("one package with 3 cores is assumed")));
}

TEST_F(DetectTest, NothingAtAllIsStillAMachine) {
  const auto result = detect({});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->graph.of_kind(NodeKind::kCore).size(), 1u);
}

TEST_F(DetectTest, HwlocGivesThePartsAndFilesTheSpeeds) {
  fake_nvml.gpu_count = 0;
  write_device(sys_, 0, 0, "0x030200", "0x10de", "0x2330");  // 0000:03:00.0, as in the example
  std::ifstream file(TUTTI_MACHINES "/example.hwloc.xml");
  FixedHwloc hwloc({std::istreambuf_iterator<char>(file), {}});
  const auto [graph, notes] = detected(&hwloc);
  const uint32_t gpu = graph.find("gpu1");
  ASSERT_EQ(graph.node(gpu).bus_id, "0000:03:00.0");
  EXPECT_EQ(graph.edge(graph.links_of(gpu)[0].edge).bytes_per_s, (Fact{63'015'384'608, Origin::kSysfs}));
  EXPECT_EQ(graph.edge(graph.links_of(graph.find("gpu0"))[0].edge).bytes_per_s.origin, Origin::kHwloc);
  EXPECT_THAT(notes, Not(Contains(HasSubstr("hwloc is not used"))));
}

TEST_F(DetectTest, AWrongAnswerOfHwlocIsLeftOut) {
  write_eight_gpus(sys_);
  FixedHwloc hwloc("<topology version=\"3.0\"/>");
  const auto [graph, notes] = detected(&hwloc);
  EXPECT_EQ(graph.of_kind(NodeKind::kGpu).size(), 8u);
  EXPECT_THAT(notes, Contains(HasSubstr("hwloc's answer is not used: line 1: hwloc XML version '3.0'")));
}

// Goal: files with nonsense are skipped, as a virtual machine may have them.
TEST_F(DetectTest, NonsenseInFilesIsSkipped) {
  write_processors(sys_, 1, 2);
  sys_.write("devices/system/node/node0/cpulist", "0-99999999999");
  const std::string card = write_device(sys_, 0, 1, "0x020000", "0x1af4", "0x1041");
  sys_.write(card + "/max_link_speed", "Unknown speed");
  sys_.write(card + "/max_link_width", "255");
  sys_.write(card + "/virtio0/net/eth0/speed", "-1");
  fake_nvml.gpu_count = 0;
  const auto [graph, notes] = detected();
  EXPECT_EQ(graph.node(graph.find("eth0")).bytes_per_s.origin, Origin::kAssumed);
  EXPECT_THAT(notes, Contains(HasSubstr("the speed of 1 network cards is assumed")));
}

TEST(ThisMachineTest, IsDetectedAndPrintsItself) {
  const auto machine = detect_this_machine();
  ASSERT_TRUE(machine) << machine.status().text();
  EXPECT_GE(machine->graph.of_kind(NodeKind::kCore).size(), 1u);
  const auto again = parse_graph(print_graph(machine->graph));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, machine->graph);
}

}  // namespace
}  // namespace tutti::topology
