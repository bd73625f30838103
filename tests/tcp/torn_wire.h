// TornWire: both ends of a connection whose kernel and network the test plays: bytes are in flight, then at
// the peer's host (confirmed), then read. A tear loses what is in flight. What has reached a host can still
// be read.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transports/sim/sim.h"
#include "transports/tcp/stream.h"

namespace tutti::test {

struct TornWire {
  struct Direction {
    std::deque<std::byte> flight;
    std::deque<std::byte> arrived;
    uint64_t written = 0;
    bool has_end = false;  ///< behind `flight`
  };
  explicit TornWire(uint64_t seed, uint64_t life_bytes) : random(seed), left(life_bytes) {}

  /// Some of what is in flight reaches the other host.
  void deliver(Direction& direction, bool may_arrive) {
    if (!may_arrive) direction.flight.clear();
    const size_t most = direction.flight.size();
    const size_t count = most == 0 ? 0 : 1 + random.below(most);
    direction.arrived.insert(direction.arrived.end(), direction.flight.begin(),
                             direction.flight.begin() + static_cast<ptrdiff_t>(count));
    direction.flight.erase(direction.flight.begin(),
                           direction.flight.begin() + static_cast<ptrdiff_t>(count));
  }
  /// Some bytes still arrive.
  void tear() {
    for (int end = 0; end < 2; ++end) {
      deliver(directions[end], !closed[1 - end]);
      directions[end].flight.clear();
    }
    is_torn = true;
  }

  SimRandom random;
  uint64_t left;  ///< bytes that it still carries
  bool is_torn = false;
  uint64_t silent_ms = 0;  ///< since when both hosts do not answer
  std::array<bool, 2> closed = {false, false};
  std::array<Direction, 2> directions;  ///< by the writing end
};

class TornStream final : public tcp::Stream {
 public:
  TornStream(std::shared_ptr<TornWire> wire, int end) : wire_(std::move(wire)), end_(end) {}
  ~TornStream() override { close(); }

  ssize_t write(const iovec* pieces, size_t count, bool /*without_copy*/) override {
    if (wire_->is_torn || wire_->closed[end_]) return -ECONNRESET;
    TornWire::Direction& out = wire_->directions[end_];
    size_t taken = 0;
    constexpr size_t kRoom = 20'000;
    for (size_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
      for (size_t k = 0; k < pieces[i].iov_len; ++k) {
        if (wire_->left == 0) break;
        if (out.flight.size() + out.arrived.size() >= kRoom)
          return taken > 0 ? static_cast<ssize_t>(taken) : -EAGAIN;
        out.flight.push_back(from[k]);
        ++taken;
        ++out.written;
        --wire_->left;
      }
    }
    if (wire_->left == 0) wire_->tear();
    return taken > 0 ? static_cast<ssize_t>(taken) : -ECONNRESET;
  }
  ssize_t read(const iovec* pieces, size_t count) override {
    TornWire::Direction& in = wire_->directions[1 - end_];
    if (!wire_->is_torn) wire_->deliver(in, !wire_->closed[end_]);
    if (in.arrived.empty()) {
      if (wire_->is_torn || wire_->closed[1 - end_]) return wire_->random.below(2) == 0 ? -ECONNRESET : 0;
      return in.has_end && in.flight.empty() ? 0 : -EAGAIN;
    }
    size_t given = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t part = std::min(pieces[i].iov_len, in.arrived.size());
      std::copy_n(in.arrived.begin(), part, static_cast<std::byte*>(pieces[i].iov_base));
      in.arrived.erase(in.arrived.begin(), in.arrived.begin() + static_cast<ptrdiff_t>(part));
      given += part;
    }
    return static_cast<ssize_t>(given);
  }
  bool can_write_in_place() const override { return false; }
  uint64_t burst_bytes() const override { return 0; }
  void hold_small(bool /*on*/) override {}
  void acknowledge() override {}
  bool next_completion(tcp::Completion& /*completion*/) override { return false; }
  void finish() override { wire_->directions[end_].has_end = true; }
  /// Later bytes of the peer do not arrive.
  void close() override {
    wire_->closed[end_] = true;
    wire_->directions[1 - end_].flight.clear();
  }
  void forget() override { wire_->directions[end_].flight.clear(); }
  Result<bool> shake_hands() override { return true; }
  short awaited_events() const override { return 0; }
  uint64_t silent_ms() const override { return wire_->silent_ms; }
  uint64_t unconfirmed_bytes() const override { return wire_->directions[end_].flight.size(); }
  uint64_t confirmed_bytes() override {
    // A torn or closed wire confirms nothing more; what it lost counts as not confirmed.
    if (!wire_->is_torn && !wire_->closed[1 - end_])
      confirmed_ = wire_->directions[end_].written - unconfirmed_bytes();
    return confirmed_;
  }
  bool is_loopback() const override { return false; }
  int descriptor() const override { return -1; }
  const std::string& address() const override { return name_; }
  const std::string& own_address() const override { return name_; }

 private:
  std::shared_ptr<TornWire> wire_;
  int end_;
  uint64_t confirmed_ = 0;
  std::string name_ = "192.0.2.7:4711";
};

}  // namespace tutti::test
