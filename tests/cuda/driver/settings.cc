#include "tests/cuda/driver/settings.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace fake_cuda {
namespace {

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

uint64_t number(const char* name, uint64_t otherwise) {
  const std::string value = text(name);
  return value.empty() ? otherwise : std::stoull(value);
}

std::vector<std::string> split(const std::string& list, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

DevicePairs pairs(const char* name) {
  DevicePairs found;
  for (const std::string& pair : split(text(name), ',')) {
    const auto ends = split(pair, ':');
    found.emplace_back(std::stoi(ends.at(0)), std::stoi(ends.at(1)));
  }
  return found;
}

std::vector<int> visible_devices() {
  const auto count = static_cast<int>(number("FAKE_CUDA_DEVICES", 1));
  std::vector<int> devices;
  if (std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) {
    for (int device = 0; device < count; ++device) devices.push_back(device);
    return devices;
  }
  for (const std::string& device : split(text("CUDA_VISIBLE_DEVICES"), ',')) {
    // As the driver does: the list ends at the first that does not exist.
    const int index = std::stoi(device);
    if (index < 0 || index >= count) break;
    devices.push_back(index);
  }
  return devices;
}

// The thread sanitizer keeps a megabyte for each thread; under the address sanitizer switching between many
// takes minutes.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kMostThreads = 32;
#else
constexpr uint64_t kMostThreads = UINT64_MAX;
#endif

Settings read() {
  Settings all;
  all.devices = visible_devices();
  all.multiprocessors = static_cast<int>(number("FAKE_CUDA_SMS", 4));
  all.blocks_per_multiprocessor = static_cast<int>(number("FAKE_CUDA_BLOCKS", 2));
  all.most_threads = number("FAKE_CUDA_THREADS", kMostThreads);
  all.cooperative_blocks = number("FAKE_CUDA_COOPERATIVE", all.cooperative_blocks);
  all.queue_entries = number("FAKE_CUDA_QUEUE", all.queue_entries);
  all.seed = number("FAKE_CUDA_SEED", 1);
  all.version = static_cast<int>(number("FAKE_CUDA_VERSION", 13000));
  all.capability = static_cast<int>(number("FAKE_CUDA_CAPABILITY", 90));
  all.memory_bytes = number("FAKE_CUDA_MEMORY", all.memory_bytes);
  all.no_files = number("FAKE_CUDA_NO_FILES", 0) != 0;
  all.dma_buf = number("FAKE_CUDA_DMA_BUF", 1) != 0;
  all.writes_ordered = number("FAKE_CUDA_WRITES_ORDERED", 0) != 0;
  all.hidden = number("FAKE_CUDA_HIDDEN", 0) != 0;
  all.multicast = number("FAKE_CUDA_MULTICAST", 0) != 0;
  all.mps = number("FAKE_CUDA_MPS", 0) != 0;
  all.turns = text("FAKE_CUDA_TURNS");
  all.no_peer = pairs("FAKE_CUDA_NO_PEER");
  all.broken_peer = pairs("FAKE_CUDA_BROKEN_PEER");
  for (const std::string& fault : split(text("FAKE_CUDA_FAIL"), ',')) {
    const auto parts = split(fault, ':');
    all.faults.push_back(
        {parts.at(0), std::stoi(parts.at(1)), static_cast<CUresult>(std::stoi(parts.at(2)))});
  }
  all.serial_graphs = number("FAKE_CUDA_SERIAL", 0) != 0;
  all.connections = number("CUDA_DEVICE_MAX_CONNECTIONS", all.connections);
  all.report_leaks = number("FAKE_CUDA_LEAKS", 0) != 0;
  return all;
}

}  // namespace

const Settings& settings() {
  static const Settings kAll = read();
  return kAll;
}

bool holds(const DevicePairs& pairs, int one, int other) {
  return std::any_of(pairs.begin(), pairs.end(), [&](const std::pair<int, int>& pair) {
    return pair == std::pair(one, other) || pair == std::pair(other, one);
  });
}

}  // namespace fake_cuda
