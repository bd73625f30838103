// Binding for a GPU: a plan and the bytes of a call become the tables of a Program. Pure host code: it calls
// no driver, and its result is copied to wherever the kernel can reach it.
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

/// The uses of multicast memory, each with rings of its own. A rank contributes to what `peer` collects: it
/// writes slots in its own memory, which the collector reads through the address that stands for all ranks'
/// memory, and gives back at once (credit_mask 0), for a rank has not ended before its contributions are read
/// (comes_back). A rank publishes: it writes slots through that address, and each reader reads its own. The
/// links' cells and credits are as those of other links; a rank contributes to itself too.
enum class Multicast : uint8_t { kCollect, kPublish };

/// Where the links of a rank are among Program::sends and Program::receives.
class LinkIndex {
 public:
  virtual ~LinkIndex() = default;
  /// `channel` as of tutti::channel_of_stripe, kMessageChannel included.
  virtual uint32_t send(uint32_t peer, uint32_t channel) = 0;
  virtual uint32_t receive(uint32_t peer, uint32_t channel) = 0;
  /// Only where the communicator has Facts::can_multicast. All links of one ring have the same slots.
  virtual uint32_t send_multicast(uint32_t /*peer*/, uint32_t /*stripe*/, Multicast /*use*/) {
    return UINT32_MAX;
  }
  virtual uint32_t receive_multicast(uint32_t /*peer*/, uint32_t /*stripe*/, Multicast /*use*/) {
    return UINT32_MAX;
  }
  /// No window where memory is not shared.
  virtual PeerExposedBuffer window(uint32_t /*peer*/) { return {}; }
  /// The place of memory that all lies in one of the rank's regions; else 0.
  virtual uint64_t find_locality(const void* /*address*/, uint64_t /*bytes*/) { return 0; }
};

/// The tables of a Program in host memory; see there.
struct Image {
  std::vector<Step> steps;
  std::vector<End> ends;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> chunk_bytes;
  std::vector<Lane> lanes;
  std::vector<PeerExposedBuffer> windows;
  std::vector<ShortLane> short_lanes;  ///< of a short call, in place of the tables above but `lanes`
  uint32_t threads = kBlockThreads;    ///< that its blocks should have
  uint64_t scratch_bytes = 0;
  uint64_t reference_bytes = UINT64_MAX;
  uint64_t signature_seed = 0;
  bool is_collective = true;
  Arithmetic arithmetic{};
};

/// Binds one rank's plan, each lane once for every stripe: stripe i, of `stripes[i]`, has the channels
/// channel_of_stripe(i, ...). What the plan publishes it copies or collects. Every message is the one that
/// Operation::bind gives for the same stripe and options; what these say of pulling and streaming does not
/// count.
Image bind(const Plan& plan, std::span<const Geometry> stripes, const BindOptions& options, LinkIndex& links);

/// Binds a group of messages, none to the own rank: one lane per peer and direction, in call order, as
/// Operation::bind_messages.
Image bind_messages(std::span<const Message> messages, const BindOptions& options, LinkIndex& links);

/// The mailboxes between a rank and one of its peers, as addresses that the kernel can reach: kMailboxBytes
/// each, 16-byte aligned.
struct MailLink {
  uint64_t out = 0;  ///< where the rank writes, in the peer's memory
  uint64_t in = 0;   ///< where the peer writes
};

/// Whether one rank's plan can be bound for short calls: 2 to kMaxShortRanks ranks, and whatever a rank needs
/// comes straight from the inputs. Ask of all ranks' plans.
bool is_one_shot(const Plan& plan);

/// Binds a rank's one-shot plan for a short call, a lane for each of at most kMaxShortLanes stripes, each of
/// which moves at most kMostShortBytes in all from rank to rank. `mail`: by rank, the rank itself included.
Image bind_short(const Plan& plan, std::span<const Geometry> stripes, const BindOptions& options,
                 std::span<const MailLink> mail);

/// What a Program points to besides its own tables; addresses that the kernel can reach.
struct Surroundings {
  SendLink* sends = nullptr;
  RecvLink* receives = nullptr;
  RankState* state = nullptr;
  Signals* signals = nullptr;
  unsigned char* scratch = nullptr;  ///< Image::scratch_bytes
};

/// Bytes of a packed image.
size_t packed_bytes(const Image& image);
/// What a Program's steps compute with, for all kinds of calls.
Arithmetic arithmetic_of(const Plan& plan, const BindOptions& options);
/// Writes a Program and its tables, ready to run, to `out`, as they must lie at `address`: the Program first.
/// Both are 16-byte aligned and have packed_bytes.
void pack(const Image& image, const Surroundings& around, uint64_t address, std::byte* out);

}  // namespace tutti::cuda
