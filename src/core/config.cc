#include "core/config.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <type_traits>

#include "core/log.h"
#include "core/variables.h"

namespace tutti {
namespace {

struct Range {
  uint64_t min;
  uint64_t max;
  bool power_of_two = false;
};

bool is_set(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text != nullptr && *text != '\0';
}

/// A variable of NCCL stops no job: the number is read as NCCL reads it, and what NCCL would not take is told
/// in the log.
template <class T>
void read_nccl_number(const char* name, const char* text, Range range, T& value) {
  char* stop = nullptr;
  errno = 0;
  const long long number = std::strtoll(text, &stop, 0);
  const bool is_number = errno == 0 && stop != text;
  if (is_number && std::is_same_v<T, bool>) {
    value = static_cast<T>(number != 0);
  } else if (is_number && number >= 0 && static_cast<uint64_t>(number) >= range.min &&
             static_cast<uint64_t>(number) <= range.max) {
    value = static_cast<T>(number);
  } else {
    log_line(format(
        "environment variable %s is \"%s\", which is no number from %llu to %llu: the default is "
        "used",
        name, text, static_cast<unsigned long long>(range.min), static_cast<unsigned long long>(range.max)));
  }
}

template <class T>
Status read_number(const Environment& environment, const char* name, Range range, T& value) {
  if (!is_set(environment, name)) return Status::ok();
  const char* text = environment(name);
  if (std::string_view(name).starts_with("NCCL_")) {
    read_nccl_number(name, text, range, value);
    return Status::ok();
  }
  uint64_t number = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, number);
  const bool legal = error == std::errc() && stop == end && number >= range.min && number <= range.max &&
                     (!range.power_of_two || std::has_single_bit(number));
  if (!legal) {
    return {Code::kInvalidArgument,
            format("environment variable %s is \"%s\"; it must be a %s from %llu to %llu", name, text,
                   range.power_of_two ? "power of two" : "number", static_cast<unsigned long long>(range.min),
                   static_cast<unsigned long long>(range.max))};
  }
  value = static_cast<T>(number);
  return Status::ok();
}

Status read_wait(const Environment& environment, WaitMode& mode) {
  if (!is_set(environment, "TUTTI_WAIT")) return Status::ok();
  const char* text = environment("TUTTI_WAIT");
  const std::string_view word = text;
  if (word == "auto") {
    mode = WaitMode::kAuto;
  } else if (word == "spin") {
    mode = WaitMode::kSpin;
  } else if (word == "yield") {
    mode = WaitMode::kYield;
  } else {
    return {Code::kInvalidArgument,
            format("environment variable TUTTI_WAIT is \"%s\"; it must be auto, spin or yield", text)};
  }
  return Status::ok();
}

void read_text(const Environment& environment, const char* name, std::string& value) {
  if (const char* text = environment(name); text != nullptr) value = text;
}

void read_cache_folder(const Environment& environment, std::string& folder) {
  std::string base;
  read_text(environment, "HOME", base);
  if (!base.empty()) folder = base + "/.cache/tutti";
  base.clear();
  read_text(environment, "XDG_CACHE_HOME", base);
  if (!base.empty()) folder = base + "/tutti";
  base.clear();
  read_text(environment, "TUTTI_CACHE_DIR", base);
  if (!base.empty()) folder = base;
}

/// Each later variable overrides the earlier ones.
void read_interfaces(const Environment& environment, std::string& filter) {
  std::string gloo;
  read_text(environment, "GLOO_SOCKET_IFNAME", gloo);
  if (!gloo.empty()) filter = "=" + gloo;
  for (const char* name : {"NCCL_SOCKET_IFNAME", "TUTTI_SOCKET_IFNAME"}) {
    std::string value;
    read_text(environment, name, value);
    if (!value.empty()) filter = value;
  }
}

/// NCCL writes "chosen" as -1.
Status read_gid_index(const Environment& environment, const char* name, int32_t& index) {
  constexpr uint64_t kMost = 255;
  const char* text = environment(name);
  if (text != nullptr && std::string_view(text) == "-1") {
    index = -1;
    return Status::ok();
  }
  return read_number(environment, name, {0, kMost}, index);
}

/// NCCL's names first: each later variable overrides the earlier ones.
Status read_infiniband(const Environment& environment, InfinibandConfig& config) {
  for (const std::string prefix : {"NCCL_IB_", "TUTTI_IB_"}) {
    const auto number = [&](const char* name, Range range, auto& value) {
      return read_number(environment, (prefix + name).c_str(), range, value);
    };
    TUTTI_TRY(number("DISABLE", {0, 1}, config.is_disabled));
    std::string devices;
    read_text(environment, (prefix + "HCA").c_str(), devices);
    if (!devices.empty()) config.devices = devices;
    TUTTI_TRY(read_gid_index(environment, (prefix + "GID_INDEX").c_str(), config.gid_index));
    TUTTI_TRY(number("SL", {0, 15}, config.service_level));
    TUTTI_TRY(number("TC", {0, 255}, config.traffic_class));
    TUTTI_TRY(number("TIMEOUT", {0, 31}, config.timeout));
  }
  return read_number(environment, "TUTTI_IB_PINNED_BYTES", {0, UINT64_MAX}, config.pinned_bytes);
}

/// NCCL's variables are understood where they say "never".
Status read_gpu_direct(const Environment& environment, bool& is_on) {
  std::string level;
  std::string exports;
  read_text(environment, "NCCL_NET_GDR_LEVEL", level);
  read_text(environment, "NCCL_DMABUF_ENABLE", exports);
  is_on = level != "LOC" && level != "0" && exports != "0";
  return read_number(environment, "TUTTI_GPU_DIRECT", {0, 1}, is_on);
}

/// The number is a variable of CUDA. A value that CUDA ignores is no error in tutti either.
Status read_device_queues(const Environment& environment, Config& config) {
  constexpr uint32_t kMostQueues = 32;
  uint32_t number = 0;
  if (read_number(environment, "CUDA_DEVICE_MAX_CONNECTIONS", {1, kMostQueues}, number) && number != 0)
    config.device_queues = number;
  return read_number(environment, "TUTTI_GPU_YIELD", {0, 1}, config.gpu_yield);
}

Status read_ports(const Environment& environment, const char* name, uint16_t& first, uint16_t& last) {
  std::string text;
  read_text(environment, name, text);
  if (text.empty()) return Status::ok();
  const char* end = text.data() + text.size();
  const auto [dash, first_error] = std::from_chars(text.data(), end, first);
  if (first_error == std::errc() && dash != end && *dash == '-') {
    const auto [stop, last_error] = std::from_chars(dash + 1, end, last);
    if (last_error == std::errc() && stop == end && first > 0 && first <= last) {
      return Status::ok();
    }
  }
  return {Code::kInvalidArgument,
          format("environment variable %s is \"%s\"; it must be two ports FIRST-LAST, from 1 to 65535", name,
                 text.c_str())};
}

Status read_key(const Environment& environment, std::string& key) {
  constexpr size_t kLeastCharacters = 16;
  constexpr size_t kMostCharacters = 4096;
  const char* source = "TUTTI_KEY";
  read_text(environment, source, key);
  std::string path;
  read_text(environment, "TUTTI_KEY_FILE", path);
  if (key.empty() && !path.empty()) {
    source = "TUTTI_KEY_FILE";
    std::ifstream file(path);
    key.resize(kMostCharacters);
    file.read(key.data(), kMostCharacters);
    key.resize(static_cast<size_t>(file.gcount()));
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
    if (key.empty()) {
      return {
          Code::kInvalidArgument,
          format("environment variable TUTTI_KEY_FILE is \"%s\", which cannot be read or is empty: name a "
                 "file that holds the key",
                 path.c_str())};
    }
  }
  if (!key.empty() && key.size() < kLeastCharacters) {
    // The message leaves out the key, because messages end up in logs.
    return {Code::kInvalidArgument,
            format("the key of %s has %zu characters; a secret needs at least %zu, such as the output of "
                   "`openssl rand -hex 32`",
                   source, key.size(), kLeastCharacters)};
  }
  return Status::ok();
}

/// Ordinary stores are as fast up to a size that was measured on machines with L2 caches of 2 MiB and of 512
/// KiB (docs/measurements/carriage.md).
void fit_to_caches(Config& config) {
  constexpr long kLargeL2Bytes = 2 << 20;
  if (sysconf(_SC_LEVEL2_CACHE_SIZE) < kLargeL2Bytes) config.streaming_bytes = 32768;
}

}  // namespace

Result<Config> read_config(const Environment& environment) {
  Config config;
  fit_to_caches(config);
  TUTTI_TRY(read_number(environment, "TUTTI_TIMEOUT_MS", {1, kYearMs}, config.timeout_ms));
  TUTTI_TRY(read_number(environment, "TUTTI_SETUP_TIMEOUT_MS", {1, kYearMs}, config.setup_timeout_ms));
  TUTTI_TRY(read_wait(environment, config.wait));
  TUTTI_TRY(read_number(environment, "TUTTI_SLOT_BYTES", {4096, 1u << 20, true}, config.slot_bytes));
  TUTTI_TRY(read_number(environment, "TUTTI_SLOTS", {4, 256, true}, config.slots));
  TUTTI_TRY(read_number(environment, "TUTTI_REPRODUCIBLE", {0, 1}, config.reproducible));
  TUTTI_TRY(read_number(environment, "TUTTI_THREADS", {1, kMaxThreads}, config.threads));
  TUTTI_TRY(read_number(environment, "TUTTI_STRIPE_BYTES", {64, UINT64_MAX}, config.stripe_bytes));
  TUTTI_TRY(read_number(environment, "TUTTI_HEAP_BYTES", {0, 1ull << 46}, config.heap_bytes));
  TUTTI_TRY(read_number(environment, "TUTTI_REFERENCE_BYTES", {0, UINT64_MAX}, config.reference_bytes));
  TUTTI_TRY(read_number(environment, "TUTTI_PULL_BYTES", {0, UINT64_MAX}, config.pull_bytes));
  config.pull_bytes_set = is_set(environment, "TUTTI_PULL_BYTES");
  TUTTI_TRY(read_number(environment, "TUTTI_DIRECT_WRITE_BYTES", {0, UINT64_MAX}, config.direct_write_bytes));
  TUTTI_TRY(read_number(environment, "TUTTI_STREAMING_BYTES", {0, UINT64_MAX}, config.streaming_bytes));
  read_text(environment, "TUTTI_CHOICE_FILE", config.choice_file);
  TUTTI_TRY(read_number(environment, "TUTTI_PRICES", {0, 1}, config.prices));
  read_text(environment, "TUTTI_TOPOLOGY_FILE", config.topology_file);
  read_cache_folder(environment, config.cache_folder);
  read_text(environment, "TUTTI_ALGORITHM", config.algorithm);
  read_interfaces(environment, config.socket_ifname);
  read_text(environment, "TUTTI_HOSTID", config.host_id);
  TUTTI_TRY(read_number(environment, "TUTTI_HEARTBEAT_MS", {0, kYearMs}, config.heartbeat_ms));
  TUTTI_TRY(read_number(environment, "TUTTI_REPORT_SIGNAL", {0, 1}, config.report_signal));
  read_text(environment, "TUTTI_TRANSPORT", config.transport);
  TUTTI_TRY(read_infiniband(environment, config.infiniband));
  TUTTI_TRY(read_number(environment, "TUTTI_CONNECTIONS", {1, kMaxConnections}, config.connections));
  TUTTI_TRY(read_number(environment, "TUTTI_TLS", {0, 1}, config.tls));
  TUTTI_TRY(read_ports(environment, "TUTTI_PORT_RANGE", config.port_first, config.port_last));
  TUTTI_TRY(read_ports(environment, "TUTTI_INSPECT_PORTS", config.inspect_first, config.inspect_last));
  TUTTI_TRY(read_gpu_direct(environment, config.gpu_direct));
  TUTTI_TRY(read_device_queues(environment, config));
  TUTTI_TRY(read_key(environment, config.key));
  return config;
}

Config read_bootstrap_config(const Environment& environment) {
  Config config;
  read_interfaces(environment, config.socket_ifname);
  read_text(environment, "TUTTI_HOSTID", config.host_id);
  if (!read_ports(environment, "TUTTI_PORT_RANGE", config.port_first, config.port_last)) {
    config.port_first = config.port_last = 0;
  }
  if (!read_number(environment, "TUTTI_SETUP_TIMEOUT_MS", {1, kYearMs}, config.setup_timeout_ms)) {
    config.setup_timeout_ms = Config().setup_timeout_ms;
  }
  if (!read_key(environment, config.key)) config.key.clear();
  return config;
}

Environment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

std::vector<std::string> process_variables() {
  std::vector<std::string> variables;
  // Null after clearenv().
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

}  // namespace tutti
