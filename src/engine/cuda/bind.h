// Binding for a GPU: turns a plan and the bytes of a call into the tables of a Program. Host code without
// driver calls; the caller copies the result to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cuda/program.h"
#include "engine/geometry.h"
#include "engine/operation.h"
#include "plan/plan.h"

namespace tutti::cuda {

/// The uses of multicast memory. Each has rings of its own, with cells and credits like other links.
///
/// kCollect: a rank writes its contribution into slots of its own memory. The collector `peer`, which
/// contributes too, loads them through the address of all ranks' memory. It returns them at once (credit_mask
/// 0), because a rank's call ends only after that (comes_back).
///
/// kPublish: a rank writes slots through that address, and each reader reads its own copy.
enum class Multicast : uint8_t { kCollect, kPublish };

/// Names a link between two ranks.
struct LinkName {
  uint32_t stripe = 0;   ///< of a message: which part of it
  uint32_t channel = 0;  ///< of the plan, or kMessageChannel
};

/// The indices of a rank's links in Program::sends and Program::receives.
class LinkIndex {
 public:
  virtual ~LinkIndex() = default;
  virtual uint32_t send(uint32_t peer, LinkName name) = 0;
  virtual uint32_t receive(uint32_t peer, LinkName name) = 0;
  /// Only with Facts::can_multicast. All links of one ring have the same slots.
  virtual uint32_t send_multicast(uint32_t /*peer*/, uint32_t /*stripe*/, Multicast /*use*/) {
    return UINT32_MAX;
  }
  virtual uint32_t receive_multicast(uint32_t /*peer*/, uint32_t /*stripe*/, Multicast /*use*/) {
    return UINT32_MAX;
  }
  /// Empty unless memory is shared.
  virtual PeerExposedBuffer exposed_buffer(uint32_t /*peer*/) { return {}; }
  /// The location of memory that lies wholly in one of the rank's registered memories; else 0.
  virtual uint64_t find_location(const void* /*address*/, uint64_t /*bytes*/) { return 0; }
};

/// The tables of a Program (see there) in host memory.
struct Image {
  std::vector<Step> steps;
  std::vector<End> ends;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> chunk_bytes;
  std::vector<uint32_t> links;
  std::vector<Lane> lanes;
  std::vector<PeerExposedBuffer> exposed;
  std::vector<ShortLane> short_lanes;  ///< short calls: replaces the tables above, except `lanes`
  uint32_t threads = kBlockThreads;
  uint64_t scratch_bytes = 0;
  uint64_t reference_bytes = UINT64_MAX;
  uint64_t signature_seed = 0;
  bool is_collective = true;
  Arithmetic arithmetic{};
};

/// A lane of one round and no steps yet. Its entries of the tables come next.
Lane begin_lane(const Image& image);

/// Binds one rank's plan, each lane once per stripe. A slice may fill several slots of a link: `options`
/// count and measure the slots that the longest slice fills as one. A step that publishes copies or collects.
/// The messages are those of Operation::bind; options for pulling and streaming do not count.
Image bind(const Plan& plan, std::span<const Geometry> stripes, const BindOptions& options, LinkIndex& links);

/// Parts of a message of `bytes`, at most `most`. Both ends of a link must find the same number.
uint32_t message_parts(uint64_t bytes, uint32_t most);

/// Binds a group of messages as Operation::bind_messages does, with a lane for each peer, direction and part.
/// No message may go to the rank itself.
Image bind_messages(std::span<const Message> messages, const BindOptions& options, LinkIndex& links,
                    uint32_t most_parts = 1);

/// The mailboxes between a rank and one peer, as addresses that the kernel can reach. Each has kMailboxBytes
/// and is 16-byte aligned.
struct MailLink {
  uint64_t out = 0;  ///< in the peer's memory: the rank writes there
  uint64_t in = 0;   ///< the peer writes there
};

/// Binds a plan that suits packets (plan/packets.h) for a short call, a lane per stripe, at most
/// kMaxShortLanes. All stripes together move at most kMailboxDataBytes from a rank to another. `mail`: by
/// rank, with the rank itself.
Image bind_short(const Plan& plan, std::span<const Geometry> stripes, const BindOptions& options,
                 std::span<const MailLink> mail);

/// What a Program points to besides its own tables, as addresses that the kernel can reach.
struct Surroundings {
  SendLink* sends = nullptr;
  RecvLink* receives = nullptr;
  RankState* state = nullptr;
  Signals* signals = nullptr;
  unsigned char* scratch = nullptr;  ///< Image::scratch_bytes
};

size_t packed_bytes(const Image& image);
Arithmetic arithmetic_of(const Plan& plan, const BindOptions& options);
/// Writes a Program and then its tables to `out`, ready to run at `address`. Both are 16-byte aligned and
/// have packed_bytes.
void pack(const Image& image, const Surroundings& around, uint64_t address, std::byte* out);

}  // namespace tutti::cuda
