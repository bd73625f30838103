// Import and export of hwloc's and NCCL's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "tests/topology/shared_files.h"
#include "topology/cards.h"
#include "topology/file.h"
#include "topology/hwloc_xml.h"
#include "topology/nccl_xml.h"
#include "topology/paths.h"
#include "topology/pci.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Imported imported(std::string_view text) {
  auto result = parse_topology(text);
  EXPECT_TRUE(result) << result.status().text();
  return result ? std::move(*result) : Imported();
}

std::string refusal(std::string_view text) {
  const auto result = parse_topology(text);
  return result ? "accepted" : std::string(result.status().text());
}

std::string text_of(const std::string& name) {
  std::ifstream file(TUTTI_MACHINES "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A replaced part of a text, for files with one fault.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// Two NUMA nodes of one package; a switch with two GPUs and a card with two ports; a GPU at the second NUMA
// node; a matrix that joins the first two GPUs over two NVSwitches and the last two directly.
const std::string kHwloc = text_of("example.hwloc.xml");

TEST(HwlocTest, PartsSpeedsAndWiresAreImported) {
  const auto [graph, notes] = imported(kHwloc);
  EXPECT_EQ(graph.node(0).model, "A & B");
  EXPECT_EQ(graph.of_kind(NodeKind::kGpu).size(), 3u);
  EXPECT_EQ(graph.node(graph.find("core0")).count, 2u);
  EXPECT_EQ(graph.node(graph.find("gpu1")).bus_id, "0000:03:00.0");
  EXPECT_EQ(graph.node(graph.find("gpu1")).model, "NVIDIA H100");
  EXPECT_EQ(graph.node(graph.find("gpu2")).memory_bytes, 77'000'000'000u);
  EXPECT_THAT(notes, Contains(HasSubstr("memory belongs to the processors")));
  EXPECT_THAT(notes, Contains(HasSubstr("speed of network cards")));

  // clang 14 lets no lambda capture a structured binding by itself.
  const auto distance = [&graph = graph](const char* a, const char* b) {
    return distance_text(graph, graph.find(a), graph.find(b));
  };
  EXPECT_EQ(distance("gpu0", "gpu1"), "NV18");
  EXPECT_EQ(distance("gpu0", "gpu2"), "NV4");
  EXPECT_EQ(distance("gpu1", "mlx5_0"), "PIX");
  EXPECT_EQ(distance("gpu1", "gpu2"), "SYS");
  // Both switches are one node, and the narrower of device and port counts.
  EXPECT_EQ(graph.node(graph.find("nvswitch")).count, 2u);
  EXPECT_EQ(WidestPaths(graph, graph.find("gpu0")).bytes_per_s(graph.find("gpu1")), 450'000'000'000u);
  EXPECT_EQ(WidestPaths(graph, graph.find("gpu1")).bytes_per_s(graph.find("numa0")), 15'753'846'000u);
}

// Goal: a core's index is a CPU. It was hwloc's index of a core, which counts anew in every package, so both
// cores were taken for CPU 0.
TEST(HwlocTest, CoresAreKnownByTheirFirstCpu) {
  const auto [graph, notes] = imported(R"(<topology version="2.0"><object type="Machine" cpuset="0xf">
    <object type="Package" os_index="0" cpuset="0x5"><object type="Core" os_index="0" cpuset="0x5">
      <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="2" cpuset="0x4"/>
    </object></object>
    <object type="Package" os_index="1" cpuset="0xa"><object type="Core" os_index="0" cpuset="0xa">
      <object type="PU" os_index="1" cpuset="0x2"/><object type="PU" os_index="3" cpuset="0x8"/>
    </object></object>
  </object></topology>)");
  const auto cores = graph.of_kind(NodeKind::kCore);
  ASSERT_EQ(cores.size(), 2u);
  EXPECT_EQ(graph.node(cores[0]).os_index, 0);
  EXPECT_EQ(graph.node(cores[1]).os_index, 1);
  EXPECT_EQ(graph.node(cores[1]).count, 2u);
  EXPECT_EQ(graph.around(core_of(graph, CpuSet(0b10)), NodeKind::kPackage), graph.find("package1"));
  // A file that was written from the graph keeps this.
  const auto again = parse_topology(*export_hwloc(graph));
  ASSERT_TRUE(again) << again.status().text();
  EXPECT_EQ(again->graph.node(again->graph.find("core1")).os_index, 1);
}

TEST(HwlocTest, FaultsNameTheLine) {
  EXPECT_THAT(refusal(with(kHwloc, "version=\"2.0\"", "version=\"3.0\"")),
              HasSubstr("line 3: hwloc XML version '3.0'"));
  EXPECT_THAT(refusal(with(kHwloc, " version=\"2.0\"", "")), HasSubstr("line 3: hwloc XML version ''"));
  EXPECT_THAT(refusal(with(kHwloc, "\"Machine\" cpuset", "\"System\" cpuset")),
              HasSubstr("line 4: the outermost"));
  EXPECT_THAT(refusal(with(kHwloc, "0x00000003", "3 to 5")), HasSubstr("line 10: the cpuset"));
  EXPECT_THAT(refusal(with(kHwloc, "0000:04:00.0", "0000:03:00.0")), HasSubstr("line 24: a second device"));
  EXPECT_THAT(refusal(with(kHwloc, "0000:04:00.0", "-")),
              HasSubstr("line 24: a PCI device without an address"));
  EXPECT_THAT(refusal(with(kHwloc, "0 100000 0 0 0", "0 100000 0 0")),
              HasSubstr("5 objects need 25 values, found 24"));
  EXPECT_THAT(refusal(with(kHwloc, "0 100000 0 0 0", "0 -100000 0 0 0")),
              HasSubstr("expected a list of numbers"));
  EXPECT_THAT(refusal(kHwloc.substr(0, kHwloc.size() / 2)), HasSubstr("line "));
  EXPECT_THAT(refusal("<topology version=\"2.0\"></topology>"), HasSubstr("no <object type=\"Machine\">"));
}

// Goal: a file of a few megabytes cannot take gigabytes: the type of a matrix stands before each name.
TEST(HwlocTest, NamesInAMatrixAreBounded) {
  const auto matrix = [](const std::string& type, size_t count) {
    std::string names;
    for (size_t i = 0; i < count; ++i) names += "1 ";
    return "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\"/>\n<distances2 type=\"" + type +
           "\" name=\"NVLinkBandwidth\"><indexes>" + names + "</indexes></distances2></topology>";
  };
  EXPECT_EQ(refusal(matrix("PCIDev", 4096)), "line 2: 4096 objects need 16777216 values, found 0");
  EXPECT_EQ(refusal(matrix("PCIDev", 4097)), "line 2: more than 4096 objects");
  EXPECT_EQ(refusal(matrix("PCIDev", 100'000)), "line 2: more than 4096 objects");
  EXPECT_EQ(refusal(matrix(std::string(64, 'x'), 1)), "line 2: 1 objects need 1 values, found 0");
  EXPECT_EQ(refusal(matrix(std::string(65, 'x'), 1)), "line 2: a type of more than 64 bytes");
}

TEST(HwlocTest, NumaNodesAreBounded) {
  const auto machine = [](size_t numa_nodes) {
    std::string text = "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\">\n";
    for (size_t i = 0; i < numa_nodes; ++i) text += "<object type=\"NUMANode\" cpuset=\"0x0\"/>";
    return text + "</object></topology>";
  };
  EXPECT_EQ(refusal(machine(1024)), "accepted");
  EXPECT_EQ(refusal(machine(1025)), "line 2: more than 1024 NUMA nodes");
}

TEST(HwlocTest, WiresToUnknownObjectsAreANote) {
  EXPECT_THAT(imported(with(kHwloc, "PCIDev:22 OSDev:9", "PCIDev:22 OSDev:99")).notes,
              Contains(HasSubstr("an object that is not in the file")));
}

const std::string kNccl = text_of("example.nccl.xml");

TEST(NcclTest, PartsSpeedsAndWiresAreImported) {
  const auto [graph, notes] = imported(kNccl);
  EXPECT_EQ(distance_text(graph, graph.find("gpu0"), graph.find("gpu1")), "NV18");
  EXPECT_EQ(distance_text(graph, graph.find("gpu0"), graph.find("mlx5_0")), "PIX");
  EXPECT_EQ(WidestPaths(graph, graph.find("gpu0")).bytes_per_s(graph.find("gpu1")), 450'000'000'000u);
  const Node& card = graph.node(graph.find("mlx5_0"));
  EXPECT_EQ(card.count, 2u);
  EXPECT_EQ(card.bytes_per_s, (Fact{50'000'000'000, Origin::kFile}));
  EXPECT_EQ(graph.node(graph.find("gpu0")).model, "H100");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 network cards have no speed"),
                                 HasSubstr("1 PCI switches have a slower link up than below")));
}

TEST(NcclTest, FaultsNameTheLine) {
  EXPECT_THAT(refusal(with(kNccl, "numaid=\"0\"", "numaid=\"zero\"")),
              HasSubstr("line 2: <cpu numaid=\"zero\">"));
  EXPECT_THAT(refusal(with(kNccl, "0000:08:00.0", "here")), HasSubstr("line 3: <pci> without a PCI address"));
  EXPECT_THAT(refusal(with(kNccl, "0000:0c:00.0", "0000:0f:00.0")),
              HasSubstr("line 10: a second device at 0000:0f:00.0"));
  EXPECT_THAT(refusal(with(kNccl, "\"200000\"", "\"-200000\"")),
              HasSubstr("line 12: <net speed=\"-200000\">"));
  EXPECT_THAT(refusal(with(kNccl, "count=\"9\"", "count=\"0\"")), HasSubstr("line 6: <nvlink count=\"0\">"));
  EXPECT_THAT(refusal(with(kNccl, "sm=\"90\"", "sm=\"20\"")), HasSubstr("line 6: links between GPUs"));
  EXPECT_THAT(refusal("<system/>"), HasSubstr("line 1: no <cpu> inside"));
  EXPECT_THAT(refusal("<html/>"), HasSubstr("neither"));
}

TEST(NcclTest, OddSpeedsAndTargetsAreNotes) {
  EXPECT_THAT(imported(with(kNccl, "speed=\"200000\" port=\"1\"", "speed=\"200000000\" port=\"1\"")).notes,
              Contains(HasSubstr("line 12: mlx5_0 claims 200000 Gbit/s")));
  EXPECT_THAT(imported(with(kNccl, "tclass=\"0x068000\"", "tclass=\"0x030200\"")).notes,
              Contains(HasSubstr("line 6: a link to 0000:1c:00.0")));
}

// Goal: a file with a fault in every line has a few notes, and each costs little.
TEST(NcclTest, NotesAreBounded) {
  std::string links;
  for (uint32_t i = 0; i < 1000; ++i)
    links += "\n<nvlink target=\"0000:1c:00.0\" count=\"9\" tclass=\"0x030200\"/>";
  const auto notes = imported(
                         "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:0f:00.0\" "
                         "class=\"0x030200\"><gpu dev=\"0\" sm=\"90\">" +
                         links + "</gpu></pci></cpu></system>")
                         .notes;
  ASSERT_EQ(notes.size(), 65u);
  EXPECT_THAT(notes[63], HasSubstr("line 65: a link to 0000:1c:00.0"));
  EXPECT_EQ(notes[64], "and 936 more notes");
}

// Goal: a switch is compared with what lies below it, and not with what lies elsewhere.
TEST(NcclTest, EachSwitchIsComparedWithItsOwnLinks) {
  const auto pci = [](const char* bus, const char* kind, uint32_t lanes, const std::string& inside) {
    return format("<pci busid=\"%s\" class=\"%s\" link_speed=\"32.0 GT/s PCIe\" link_width=\"%u\">", bus,
                  kind, lanes) +
           inside + "</pci>";
  };
  const char* const kSwitch = "0x060400";
  const char* const kGpu = "0x030200";
  const auto notes =
      imported("<system version=\"1\"><cpu numaid=\"0\">" +
               pci("0000:01:00.0", kSwitch, 8, pci("0000:02:00.0", kGpu, 8, "")) +
               pci("0000:03:00.0", kSwitch, 8,
                   pci("0000:04:00.0", kGpu, 16, "") + pci("0000:05:00.0", kGpu, 4, "")) +
               pci("0000:06:00.0", kSwitch, 16, pci("0000:07:00.0", kGpu, 8, "")) + "</cpu></system>")
          .notes;
  EXPECT_THAT(notes, Contains(HasSubstr("1 PCI switches have a slower link up than below, as "
                                        "switch-0000:03:00.0 with 31.5 GB/s above 63 GB/s")));
}

/// What must survive: GPUs and cards, their distances, and how wide the ways between them are.
std::string shape_of(const Graph& graph) {
  std::vector<uint32_t> devices = graph.of_kind(NodeKind::kGpu);
  for (const uint32_t nic : graph.of_kind(NodeKind::kNic)) devices.push_back(nic);
  std::string shape;
  for (const uint32_t a : devices) {
    WidestPaths paths(graph, a);
    for (const uint32_t b : devices) {
      shape += distance_text(graph, a, b) + " " + std::to_string(paths.bytes_per_s(b) / 10'000'000) + " ";
    }
    shape += "\n";
  }
  return shape;
}

TEST(ExportTest, NcclReadsBackWhatWasWritten) {
  const Graph graph = imported(kNccl).graph;
  const auto text = export_nccl(graph);
  ASSERT_TRUE(text);
  EXPECT_EQ(shape_of(imported(*text).graph), shape_of(graph));
}

TEST(ExportTest, HwlocReadsBackWhatWasWritten) {
  const Graph graph = imported(kHwloc).graph;
  const auto text = export_hwloc(graph);
  ASSERT_TRUE(text);
  const Graph again = imported(*text).graph;
  EXPECT_EQ(shape_of(again), shape_of(graph));
  EXPECT_EQ(again.of_kind(NodeKind::kCore).size(), graph.of_kind(NodeKind::kCore).size());
  EXPECT_EQ(again.node(again.find("core0")).count, 2u);
}

// The numbers of the system were replaced by 0, 1 and so on. Method: a machine that has no NUMA node 1 to 7,
// and one whose nodes have one number, which no file may keep.
TEST(ExportTest, NumaNodesKeepTheirNumbers) {
  const auto machine = [](int first, int second) {
    return format(R"(<topology version="2.0"><object type="Machine" cpuset="0x3">
      <object type="Package" cpuset="0x1">
        <object type="NUMANode" os_index="%d" cpuset="0x1" local_memory="1000000"/>
        <object type="Core" cpuset="0x1"><object type="PU" os_index="0" cpuset="0x1"/></object></object>
      <object type="Package" cpuset="0x2">
        <object type="NUMANode" os_index="%d" cpuset="0x2" local_memory="2000000"/>
        <object type="Core" cpuset="0x2"><object type="PU" os_index="1" cpuset="0x2"/></object></object>
      </object></topology>)",
                  first, second);
  };
  const auto sparse = export_hwloc(imported(machine(0, 8)).graph);
  ASSERT_TRUE(sparse);
  EXPECT_THAT(*sparse, HasSubstr("nodeset=\"0x00000101\""));
  const Graph again = imported(*sparse).graph;
  ASSERT_NE(again.find("numa8"), kNoNode) << *sparse;
  EXPECT_EQ(again.node(again.find("numa8")).memory_bytes, 2'000'000u);
  EXPECT_EQ(again.node(again.find("numa0")).memory_bytes, 1'000'000u);
  const auto twice = export_hwloc(imported(machine(3, 3)).graph);
  ASSERT_TRUE(twice);
  EXPECT_THAT(*twice, HasSubstr("NUMANode\" os_index=\"0\""));
  EXPECT_THAT(*twice, HasSubstr("NUMANode\" os_index=\"1\""));
}

// Goal: what the exporters write can be read, whatever a graph's owner has named its devices.
TEST(ExportTest, DevicesWithNamesInsteadOfAddressesAreWritten) {
  const Graph graph =
      imported("tutti topology 1\nhost h\nnuma n in h\ngpu g in n bus x\nnic c in n bus y\n").graph;
  ASSERT_EQ(graph.of_kind(NodeKind::kGpu).size(), 1u);
  for (const auto& text : {export_hwloc(graph), export_nccl(graph)}) {
    ASSERT_TRUE(text) << text.status().text();
    const Graph again = imported(*text).graph;
    EXPECT_EQ(again.of_kind(NodeKind::kGpu).size(), 1u) << *text;
    EXPECT_EQ(again.of_kind(NodeKind::kNic).size(), 1u) << *text;
  }
}

// The number of threads was cut to 32 bits, and writing them went beyond its table.
TEST(ExportTest, MoreThreadsThanAFileCanHoldAreRefused) {
  std::string text = "tutti topology 1\nhost h\nnuma n in h\n";
  for (int core = 0; core <= 4096; ++core) text += format("core c%d in n count 1048576\n", core);
  const auto refused = export_hwloc(imported(text).graph);
  EXPECT_THAT(std::string(refused.status().text()), HasSubstr("4296015872 threads of cores are too many"));
}

TEST(ExportTest, SeveralHostsAreRefused) {
  const Graph graph = imported("2 hosts x 2 gpus").graph;
  EXPECT_THAT(std::string(export_nccl(graph).status().text()), HasSubstr("the graph has 2"));
  EXPECT_THAT(std::string(export_hwloc(graph).status().text()), HasSubstr("the graph has 2"));
}

TEST(FileTest, AMissingFileIsNamed) {
  const auto result = read_topology("/no/such/file.xml");
  EXPECT_EQ(result.status().code(), Code::kSystemError);
  EXPECT_THAT(std::string(result.status().text()), HasSubstr("/no/such/file.xml"));
}

/// Goal: every file of a machine is read, printed and read again.
void check_file(const std::string& path) {
  SCOPED_TRACE(path);
  const auto file = read_topology(path);
  if (path.find(".v3.") != std::string::npos) {
    EXPECT_THAT(std::string(file.status().text()), HasSubstr("line 3: hwloc XML version '3.0'"));
    return;
  }
  ASSERT_TRUE(file) << file.status().text();
  const auto again = parse_graph(print_graph(file->graph));
  ASSERT_TRUE(again) << again.status().text();
  EXPECT_EQ(*again, file->graph);
  if (file->graph.of_kind(NodeKind::kHost).size() != 1) return;
  for (const auto& text : {export_hwloc(file->graph), export_nccl(file->graph)}) {
    ASSERT_TRUE(text);
    EXPECT_EQ(imported(*text).graph.of_kind(NodeKind::kGpu).size(),
              file->graph.of_kind(NodeKind::kGpu).size());
  }
}

/// The CPUs of each core of a file by hwloc, in its order.
void add_cpus(const XmlElement& object, bool is_in_core, std::vector<std::vector<int32_t>>& cpus_of) {
  for (const XmlElement& child : object.children) {
    const bool is_core = child.value("type") == "Core";
    const bool is_cpu = child.value("type") == "PU";
    if (is_core || (is_cpu && !is_in_core)) cpus_of.emplace_back();
    if (is_cpu) cpus_of.back().push_back(std::stoi(std::string(child.value("os_index"))));
    add_cpus(child, is_in_core || is_core, cpus_of);
  }
}

// Goal: what placements, probes and cards take for a CPU is one of the core's.
TEST(MachinesTest, IndicesOfCoresAreCpusOfTheirs) {
  auto files = test::files_under(TUTTI_MACHINES);
  for (const std::string& path : test::files_under(TUTTI_REAL_MACHINES)) files.push_back(path);
  for (const std::string& path : files) {
    SCOPED_TRACE(path);
    std::ifstream file(path);
    const auto root = parse_xml(std::string{std::istreambuf_iterator<char>(file), {}});
    if (!root || root->name != "topology" || !root->value("version").starts_with("2.")) continue;
    std::vector<std::vector<int32_t>> cpus_of;
    add_cpus(*root, false, cpus_of);
    const auto machine = import_hwloc(*root);
    ASSERT_TRUE(machine) << machine.status().text();
    const auto cores = machine->graph.of_kind(NodeKind::kCore);
    ASSERT_EQ(cores.size(), cpus_of.size());
    std::set<int32_t> indices;
    for (size_t i = 0; i < cores.size(); ++i) {
      const int32_t index = machine->graph.node(cores[i]).os_index;
      EXPECT_THAT(cpus_of[i], Contains(index)) << machine->graph.node(cores[i]).name;
      EXPECT_TRUE(indices.insert(index).second) << index;
    }
  }
}

TEST(MachinesTest, TheProjectsOwnMachinesAreRead) {
  const auto files = test::files_under(TUTTI_MACHINES);
  EXPECT_GE(files.size(), 6u);
  for (const std::string& path : files) check_file(path);
}

TEST(MachinesTest, RealMachinesAreRead) {
  const auto files = test::files_under(TUTTI_REAL_MACHINES);
  if (files.empty())
    GTEST_SKIP() << "no folder of real machines beside the source tree: " << TUTTI_REAL_MACHINES;
  EXPECT_GE(files.size(), 19u);
  for (const std::string& path : files) check_file(path);
}

TEST(PciTest, AddressesAreOneSpelling) {
  EXPECT_EQ(pci_address("00000000:0F:00.0"), "0000:0f:00.0");
  EXPECT_EQ(pci_address("0f:00.1"), "0000:0f:00.1");
  EXPECT_EQ(pci_address("ffff:ff:01.0"), "ffff:ff:01.0");
  for (const char* wrong : {"", "0000:00", "a", ":", ".", "0000:zz:00.0", "0000:00:00", "1:2:3:4.5"}) {
    EXPECT_EQ(pci_address(wrong), "") << wrong;
  }
}

TEST(PciTest, SpeedsFollowFromLanes) {
  EXPECT_EQ(pci_link_speed("16.0 GT/s PCIe", 16), 31'507'692'304u);
  EXPECT_EQ(pci_link_speed("8 GT/s", 4), 3'938'461'536u);
  EXPECT_EQ(pci_link_speed("Unknown speed", 16), 0u);
  EXPECT_EQ(pci_link_speed("16.0 GT/s", 255), 0u);
  const PciLink link = pci_link_of(pci_link_speed("32.0 GT/s PCIe", 8));
  EXPECT_EQ(pci_link_speed(link.lane_speed, link.lanes), pci_link_speed("32", 8));
}

}  // namespace
}  // namespace tutti::topology
