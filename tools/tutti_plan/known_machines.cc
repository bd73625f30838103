#include "tools/tutti_plan/known_machines.h"

#include <algorithm>
#include <iterator>

namespace tutti::tool {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

constexpr PublishedBandwidth kA100[] = {
    {16 * kMiB, 187, "MSCCL++", "test/deploy/perf_ndmv4.jsonl"},
    {kGiB, 244, "MSCCL++", "test/deploy/perf_ndmv4.jsonl"},
};
constexpr PublishedBandwidth kH100[] = {
    {kGiB, 370, "NCCL, ring", "nccl-tests issue 212"},
    {kGiB, 480, "NCCL, NVLink SHARP", "nccl-tests issue 212"},
};
constexpr PublishedBandwidth kH200[] = {{kGiB, 475, "NCCL, NVLink SHARP", "nccl-tests issue 272"}};
constexpr PublishedBandwidth kNvl72[] = {
    {512 * kMiB, 586, "NCCL", "coreweave/nccl-tests issue 43"},
    {8 * kGiB, 847, "NCCL", "coreweave/nccl-tests issue 43"},
};

// The payload of a GPU's NVLinks: 12 of 20 GB/s, 18 of 20.6, 18 of 40.1 (NCCL, src/graph/topo.h).
constexpr KnownMachine kMachines[] = {
    {.name = "a100", .description = "8 gpus, nvswitch 240 GB/s", .published = kA100, .has_multicast = false},
    {"h100", "8 gpus, nvswitch 371 GB/s", kH100},
    {"h200", "8 gpus, nvswitch 371 GB/s", kH200},
    {"b200", "8 gpus, nvswitch 722 GB/s", {}},
    {"gb200_nvl72", "72 gpus, nvswitch 722 GB/s", kNvl72},
};

}  // namespace

const KnownMachine* find_machine(std::string_view name) {
  const auto* const found = std::ranges::find(kMachines, name, &KnownMachine::name);
  return found == std::end(kMachines) ? nullptr : found;
}

std::string_view machine_names() {
  return "a100, h100, h200, b200 (8 GPUs each), gb200_nvl72";
}

}  // namespace tutti::tool
