#include "tools/socket_probes.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/file_descriptor.h"
#include "tools/meeting.h"
#include "topology/loopback.h"

namespace tutti::tool {
namespace {

using topology::SliceWork;

constexpr std::array<uint32_t, 6> kSizes = {8, 512, 4096, 16384, 65536, 262144};
constexpr size_t kHeaderBytes = 32;
constexpr size_t kArenaBytes = size_t{64} << 20;  // of each core: together beyond the caches
constexpr uint32_t kBatchBytes = 1u << 20;
constexpr uint32_t kTrips = 16;
constexpr uint32_t kRounds = 8;
constexpr uint64_t kWaitNs = Meeting::kWaitNs;

/// One core's part.
class Side {
 public:
  Side(Meeting& meeting, int socket, bool is_first)
      : meeting_(meeting), socket_(socket), is_first_(is_first), arena_(new std::byte[kArenaBytes]()) {}

  SliceSamples run() {
    for (uint32_t round = 0; round <= kRounds; ++round) {
      for (const uint32_t bytes : kSizes) {
        if (!ping_pong(bytes, false) || !ping_pong(bytes, true) || !stream(bytes)) {
          meeting_.give_up();
          return {};
        }
      }
      if (round == 0) samples_.clear();  // the first touches of pages, and the kernel's buffers
    }
    return std::move(samples_);
  }

 private:
  bool meet() {
    const bool both = meeting_.wait();
    wait_end_ns_ = now_ns() + kWaitNs;
    return both;
  }

  /// Moves a header and a payload. Spins while the socket refuses. Returns the time inside calls that moved
  /// something; a negative one: gave up.
  template <class Call>
  double move(std::byte* payload, uint32_t bytes, const Call& call) {
    std::array<iovec, 2> pieces = {iovec{header_.data(), header_.size()}, iovec{payload, bytes}};
    double busy_ns = 0;
    size_t left = kHeaderBytes + bytes;
    uint64_t begin = now_ns();
    while (left > 0) {
      const ssize_t moved = call(pieces.data(), pieces.size());
      const uint64_t end = now_ns();
      if (moved > 0) {
        busy_ns += static_cast<double>(end - begin);
        left -= static_cast<size_t>(moved);
        skip(pieces, static_cast<size_t>(moved));
      } else if (moved == 0 || (errno != EAGAIN && errno != EINTR) || end > wait_end_ns_) {
        return -1;
      }
      begin = end;
    }
    return busy_ns;
  }
  static void skip(std::array<iovec, 2>& pieces, size_t bytes) {
    for (iovec& piece : pieces) {
      const size_t part = std::min(bytes, piece.iov_len);
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + part;
      piece.iov_len -= part;
      bytes -= part;
    }
  }
  static msghdr message_of(iovec* pieces, size_t count) {
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    return message;
  }
  double send(std::byte* payload, uint32_t bytes) {
    return move(payload, bytes, [&](iovec* pieces, size_t count) {
      const msghdr message = message_of(pieces, count);
      return sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }
  double receive(std::byte* payload, uint32_t bytes) {
    return move(payload, bytes, [&](iovec* pieces, size_t count) {
      msghdr message = message_of(pieces, count);
      return recvmsg(socket_, &message, MSG_DONTWAIT);
    });
  }

  /// The same memory again, or memory that has not been touched for long.
  std::byte* memory(uint32_t bytes, bool is_cold) {
    if (!is_cold) return arena_.get();
    if (place_ + bytes > kArenaBytes) place_ = 0;
    return arena_.get() + std::exchange(place_, place_ + bytes);
  }

  bool ping_pong(uint32_t bytes, bool is_cold) {
    if (!meet()) return false;
    double send_ns = 0;
    double receive_ns = 0;
    const auto send_one = [&] {
      const double ns = send(memory(bytes, is_cold), bytes);
      send_ns += ns;
      return ns >= 0;
    };
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < kTrips; ++i) {
      if (is_first_ && !send_one()) return false;
      const double ns = receive(memory(bytes, is_cold), bytes);
      receive_ns += ns;
      if (ns < 0 || (!is_first_ && !send_one())) return false;
    }
    const auto trips_ns = static_cast<double>(now_ns() - start);
    if (!is_cold) {
      samples_[{SliceWork::kSocketSend, bytes}].push_back(send_ns / kTrips);
      samples_[{SliceWork::kSocketReceive, bytes}].push_back(receive_ns / kTrips);
    } else if (is_first_) {
      samples_[{SliceWork::kSocketPass, bytes}].push_back(trips_ns / (2 * kTrips));
    }
    return true;
  }

  /// One core sends without a pause, the other one receives.
  bool stream(uint32_t bytes) {
    if (!meet()) return false;
    const uint32_t count = std::clamp<uint32_t>(kBatchBytes / bytes, 8, 256);
    uint64_t start = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const double ns = is_first_ ? send(memory(bytes, false), bytes) : receive(memory(bytes, false), bytes);
      if (ns < 0) return false;
      if (i == 0) start = now_ns();
    }
    if (!is_first_) {
      samples_[{SliceWork::kSocketStream, bytes}].push_back(static_cast<double>(now_ns() - start) /
                                                            (count - 1));
    }
    return true;
  }

  Meeting& meeting_;
  int socket_;
  bool is_first_;
  std::unique_ptr<std::byte[]> arena_;
  size_t place_ = 0;
  std::array<std::byte, kHeaderBytes> header_ = {};
  uint64_t wait_end_ns_ = 0;
  SliceSamples samples_;
};

}  // namespace

Result<SliceSamples> measure_sockets(std::array<uint32_t, 2> cores) {
  auto ends = topology::connect_loopback();
  TUTTI_TRY(ends.status());
  Meeting meeting;
  std::array<SliceSamples, 2> samples;
  std::vector<std::jthread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      if (!run_on(cores[i])) meeting.give_up();
      samples[i] = Side(meeting, (*ends)[i].get(), i == 0).run();
    });
  }
  threads.clear();
  if (meeting.gave_up()) return SliceSamples();
  for (const auto& [key, values] : samples[1])
    samples[0][key].insert(samples[0][key].end(), values.begin(), values.end());
  return std::move(samples[0]);
}

}  // namespace tutti::tool
