// RendezvousTest: a rank that sends long messages to another one over the fake devices, on one channel, and
// tells which of them came into a posted receive without a copy.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>

#include "core/clock.h"
#include "tests/rdma/provider/control.h"
#include "tests/transports/mesh.h"

namespace tutti::test {

class RendezvousTest : public testing::Test {
 protected:
  static constexpr RingShape kShape{.slots = 8, .slot_bytes = 16384};
  static constexpr uint64_t kSliceBytes = 10'000;  // slots that are not full are not adjacent
  static constexpr uint64_t kSlices = 4;
  static constexpr uint32_t kChannel = 1;

  RendezvousTest() { fake_verbs::reset(1); }
  ~RendezvousTest() override {
    mesh_.reset();
    const fake_verbs::Seen seen = fake_verbs::seen();
    EXPECT_EQ(seen.misuse, "");
    EXPECT_EQ(seen.registered_bytes, 0u);
    EXPECT_EQ(seen.open_objects, 0u);
  }

  struct Options {
    std::span<std::byte> source;  ///< kSlices * kSliceBytes each
    std::span<std::byte> target;
    const SymmetricHeap* heap = nullptr;
    uint64_t pinned_bytes = 1u << 30;
  };
  void begin(const Options& options) {
    source_ = options.source;
    target_ = options.target;
    for (const TransportCase& one : transport_cases()) {
      if (one.name == "rdma") case_ = one;
    }
    case_.config.infiniband.pinned_bytes = options.pinned_bytes;
    mesh_ = std::make_unique<Mesh>(case_, MeshOptions{.shape = kShape, .channels = 4, .heap = options.heap});
    fill_source();
  }
  void fill_source() {
    for (size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 7 + i / 999);
  }

  TrafficSide& sender() { return mesh_->side(0, 1); }
  TrafficSide& reader() { return mesh_->side(1, 0); }
  Result<MemoryHandle> register_buffer(uint32_t rank, std::span<std::byte> buffer) {
    return mesh_->transport(rank).register_memory(buffer.data(), buffer.size(), MemoryUse::kBuffer);
  }
  bool run_until(const std::function<bool()>& is_done) {
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    while (!is_done() && now_ns() < deadline_ns) {
      for (uint32_t rank = 0; rank < 2; ++rank) mesh_->transport(rank).progress();
    }
    return is_done();
  }
  /// Gives turns until nothing moves.
  void settle() {
    uint32_t idle = 0;
    run_until([&] {
      idle = sender().connection().drained() && reader().connection().drained() ? idle + 1 : 0;
      return idle > 1000;
    });
  }
  /// The first long message of a channel asks for the slots of the peer. After it they are known.
  void warm_up() {
    Bytes zero(kSliceBytes);
    send(zero.data(), 1);
    ASSERT_TRUE(run_until([&] { return reader().recv(kChannel).has_arrived(); }));
    reader().recv(kChannel).release(reader().recv(kChannel).word());
    settle();
  }
  void offer() {
    reader().offer(kChannel) = {.first = reader().recv(kChannel).next,
                                .address = target_.data(),
                                .bytes = target_.size(),
                                .slice_bytes = kSliceBytes};
    settle();
  }
  void send(const std::byte* from, uint64_t slices) {
    for (uint64_t i = 0; i < slices; ++i)
      sender().send(kChannel).commit_reference(9, kSliceBytes, from + i * kSliceBytes);
  }
  /// Takes all slices. Returns how many came into the target; all contents are compared.
  uint64_t take() {
    uint64_t placed = 0;
    RecvLink& link = reader().recv(kChannel);
    for (uint64_t i = 0; i < kSlices; ++i) {
      EXPECT_TRUE(run_until([&] { return link.has_arrived(); }));
      const std::byte* const span = link.span(link.word());
      EXPECT_TRUE(std::equal(span, span + kSliceBytes, source_.data() + i * kSliceBytes)) << "slice " << i;
      placed += span == target_.data() + i * kSliceBytes ? 1 : 0;
      link.release(link.word());
    }
    EXPECT_TRUE(run_until([&] { return sender().send(kChannel).references_returned(); }));
    return placed;
  }

  bool target_is_source() const { return std::ranges::equal(source_, target_); }
  bool target_is_untouched() const {
    return std::ranges::all_of(target_, [](std::byte one) { return one == std::byte{0}; });
  }

  TransportCase case_;
  std::unique_ptr<Mesh> mesh_;
  std::span<std::byte> source_;
  std::span<std::byte> target_;
};

}  // namespace tutti::test
