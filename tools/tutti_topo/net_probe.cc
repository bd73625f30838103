#include "tools/tutti_topo/net_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/clock.h"
#include "core/file_descriptor.h"
#include "core/variables.h"

namespace tutti::tool {
namespace {

constexpr uint64_t kPatienceMs = 60'000;
constexpr const char* kSetUpMs = "20000";
constexpr const char* kOperationMs = "20000";

constexpr int kWarmUps = 200;
constexpr int kPings = 1000;
constexpr size_t kPingBytes = 8;
constexpr size_t kBlockBytes = 4 << 20;
constexpr uint64_t kBlocksMost = 4096;
/// A direction is measured with more and more blocks, until it takes this long.
constexpr uint64_t kLeastNs = 150'000'000;

/// A communicator of two ranks, with a buffer.
struct Two {
  int rank = 0;
  tutti_comm_t* comm = nullptr;
  std::vector<unsigned char> buffer = std::vector<unsigned char>(kBlockBytes);

  Status send(size_t bytes) {
    return check(tutti_send(buffer.data(), bytes, TUTTI_UINT8, 1 - rank, 0, comm, TUTTI_BLOCKING));
  }
  Status receive(size_t bytes) {
    return check(tutti_recv(buffer.data(), bytes, TUTTI_UINT8, 1 - rank, 0, comm, TUTTI_BLOCKING));
  }
  Status send_number(uint64_t number) {
    std::memcpy(buffer.data(), &number, sizeof(number));
    return send(sizeof(number));
  }
  Result<uint64_t> receive_number() {
    TUTTI_TRY(receive(sizeof(uint64_t)));
    uint64_t number = 0;
    std::memcpy(&number, buffer.data(), sizeof(number));
    return number;
  }
};

/// Half of the median round trip: other work on the machine delays single ones.
Result<double> measure_latency_us(Two& two) {
  std::vector<uint64_t> round_trips;
  for (int i = -kWarmUps; i < kPings; ++i) {
    const uint64_t began = now_ns();
    TUTTI_TRY(two.rank == 0 ? two.send(kPingBytes) : two.receive(kPingBytes));
    TUTTI_TRY(two.rank == 0 ? two.receive(kPingBytes) : two.send(kPingBytes));
    if (i >= 0) round_trips.push_back(now_ns() - began);
  }
  const auto middle = round_trips.begin() + kPings / 2;
  std::nth_element(round_trips.begin(), middle, round_trips.end());
  return static_cast<double>(*middle) / 1000 / 2;
}

/// The sender announces each run's blocks, and ends with the result instead.
Result<double> send_blocks(Two& two) {
  for (uint64_t blocks = 1;; blocks *= 2) {
    TUTTI_TRY(two.send_number(blocks));
    const uint64_t began = now_ns();
    for (uint64_t i = 0; i < blocks; ++i) TUTTI_TRY(two.send(kBlockBytes));
    TUTTI_TRY(two.receive_number().status());
    const uint64_t took = now_ns() - began;
    if (took < kLeastNs && blocks < kBlocksMost) continue;
    const auto bytes_per_s = static_cast<uint64_t>(static_cast<double>(blocks * kBlockBytes) * 1e9 /
                                                   static_cast<double>(std::max<uint64_t>(took, 1)));
    TUTTI_TRY(two.send_number(0));
    TUTTI_TRY(two.send_number(bytes_per_s));
    return static_cast<double>(bytes_per_s);
  }
}

Result<double> receive_blocks(Two& two) {
  for (;;) {
    const auto blocks = two.receive_number();
    TUTTI_TRY(blocks.status());
    if (*blocks == 0) break;
    for (uint64_t i = 0; i < *blocks; ++i) TUTTI_TRY(two.receive(kBlockBytes));
    TUTTI_TRY(two.send_number(*blocks));
  }
  const auto result = two.receive_number();
  TUTTI_TRY(result.status());
  return static_cast<double>(*result);
}

Result<NetFigures> measure(Two& two) {
  // As a job does that has registered its buffers; here the limit of locked memory shows.
  tutti_registered_memory_t* memory = nullptr;
  TUTTI_TRY(check(tutti_memory_register(two.comm, two.buffer.data(), two.buffer.size(), &memory)));
  const auto latency_us = measure_latency_us(two);
  TUTTI_TRY(latency_us.status());
  const auto there = two.rank == 0 ? send_blocks(two) : receive_blocks(two);
  TUTTI_TRY(there.status());
  const auto back = two.rank == 0 ? receive_blocks(two) : send_blocks(two);
  TUTTI_TRY(back.status());
  TUTTI_TRY(check(tutti_memory_deregister(two.comm, memory)));
  return NetFigures{
      .latency_us = *latency_us, .there_bytes_per_s = *there, .back_bytes_per_s = *back, .failure = {}};
}

Result<NetFigures> connect_and_measure(int rank, const tutti_unique_id_t& id) {
  Two two{.rank = rank};
  TUTTI_TRY(check(tutti_comm_create(&two.comm, 2, id, rank, nullptr)));
  const auto figures = measure(two);
  if (!figures) {
    (void)tutti_comm_abort(two.comm);  // the measurement's error counts
    return figures;
  }
  TUTTI_TRY(check(tutti_comm_destroy(two.comm)));
  return figures;
}

/// This process's environment, but with the settings of the pair.
std::vector<std::string> environment_for(const NetRail& rail) {
  std::vector<std::string> settings = {"TUTTI_TRANSPORT=" + rail.transport,
                                       std::string("TUTTI_SETUP_TIMEOUT_MS=") + kSetUpMs,
                                       std::string("TUTTI_TIMEOUT_MS=") + kOperationMs};
  settings.push_back((rail.transport == "rdma" ? "TUTTI_IB_HCA==" : "TUTTI_SOCKET_IFNAME==") + rail.name);
  std::vector<std::string> all;
  for (const std::string& variable : process_variables()) {
    const auto has_name_of = [&](const std::string& one) {
      return variable.starts_with(one.substr(0, one.find('=') + 1));
    };
    if (std::ranges::none_of(settings, has_name_of)) all.push_back(variable);
  }
  all.insert(all.end(), settings.begin(), settings.end());
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

Result<pid_t> start(const ProbeOrder& order, const FileDescriptor& input, const FileDescriptor& output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  // Its log repeats what its error says.
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> words = {"tutti-topo", "--net-probe", std::to_string(order.rank)};
  std::vector<std::string> variables = environment_for(order.rail);
  pid_t child = -1;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers(words).data(),
                                pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return system_error("starting a process that tries a pair of rails", error);
  return child;
}

/// All that the process writes, until it ends or the time is over.
std::string read_until(int descriptor, uint64_t deadline_ns) {
  std::string text;
  for (;;) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return text;
    pollfd one{.fd = descriptor, .events = POLLIN, .revents = 0};
    if (poll(&one, 1, static_cast<int>((deadline_ns - now) / 1'000'000) + 1) <= 0) continue;
    char piece[4096];
    const ssize_t count = read(descriptor, piece, sizeof(piece));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
    if (count > 0) text.append(piece, static_cast<size_t>(count));
  }
}

Result<FileDescriptor> pipe_to(FileDescriptor& reader) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  reader = FileDescriptor(ends[0]);
  return FileDescriptor(ends[1]);
}

Result<NetFigures> try_probe(const ProbeOrder& order) {
  FileDescriptor input;
  FileDescriptor output;
  auto to_child = pipe_to(input);
  TUTTI_TRY(to_child.status());
  auto from_child = pipe_to(output);
  TUTTI_TRY(from_child.status());
  // The id is a secret, so it goes through a pipe, which has room for it.
  if (write(to_child->get(), order.id.bytes, sizeof(order.id.bytes)) !=
      static_cast<ssize_t>(sizeof(order.id.bytes)))
    return system_error("writing an id to a process", errno);
  const auto child = start(order, input, *from_child);
  TUTTI_TRY(child.status());
  *from_child = FileDescriptor();
  const std::string text = read_until(output.get(), now_ns() + kPatienceMs * 1'000'000);
  if (text.empty()) kill(*child, SIGKILL);
  int status = 0;
  while (waitpid(*child, &status, 0) < 0 && errno == EINTR) {
  }
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_discarded()) return json.get<NetFigures>();
  return Status(Code::kSystemError,
                WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL
                    ? format("the process that tried it ended by signal %d", WTERMSIG(status))
                    : "the process that tried it hung");
}

}  // namespace

Status check(tutti_result_t result) {
  if (result == TUTTI_SUCCESS) return Status::ok();
  return {static_cast<Code>(result), tutti_last_error()};
}

NetFigures run_probe(const ProbeOrder& order) {
  const auto figures = try_probe(order);
  return figures ? *figures : NetFigures{.failure = std::string(figures.status().text())};
}

int probe_main(int rank) {
  tutti_unique_id_t id;
  Result<NetFigures> figures = Status(Code::kInvalidUsage, "--net-probe is for tutti-topo --net");
  if (std::cin.read(id.bytes, sizeof(id.bytes))) figures = connect_and_measure(rank, id);
  nlohmann::json json = figures ? *figures : NetFigures{.failure = std::string(figures.status().text())};
  std::cout << json << std::flush;
  return figures ? 0 : 1;
}

}  // namespace tutti::tool
