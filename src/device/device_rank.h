// DeviceRank: links in device memory, bound programs and launches of a rank on a CUDA device. Devices: those
// that ranks of this process use. Nothing of CUDA is included here: cuda_rank.h implements both, and
// no_devices.cc stands in without CUDA.
//
// Life of an operation: Devices::launch queues the kernel on a stream. If the device surely has room for all
// that the kernel waits for, the kernel stays until the end. Otherwise it leaves after a long wait, and the
// RelaunchThread launches it again on a stream of the rank, while the user's stream waits for the word
// `done`. An event orders operations across streams, so at most one launch of a rank runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "engine/geometry.h"
#include "engine/operation.h"
#include "plan/plan.h"

namespace tutti {

/// What a rank tells others about its device; all zero in host memory.
struct DeviceIdentity {
  std::array<char, 16> uuid{};
  std::array<char, 16> bus_id{};  ///< PCI address, as text; filled up with zeros
  uint32_t is_device = 0;
  uint32_t has_failed = 0;       ///< the device is unusable
  uint32_t lacks_kernels = 0;    ///< 1: the driver does not run this build's kernels
  uint32_t multiprocessors = 0;  ///< that the device's ranks may use together
  uint32_t has_file = 0;         ///< 1: a file lets other processes map the links' memory
  uint32_t multicasts = 0;       ///< 1: multicast memory is possible; of rank 0: and created
  uint64_t links_key = 0;        ///< finds the links' memory in this process

  std::string_view bus() const { return {bus_id.data(), strnlen(bus_id.data(), bus_id.size())}; }
};

struct DevicePeer {
  DeviceIdentity identity;
  bool same_process = false;
  const FileDescriptor* file = nullptr;  ///< of another process; may be null
};

/// What a rank tells others about memory that it registers.
struct RegistrationOffer {
  std::array<std::byte, 128> handle{};
  uint32_t has_file = 0;  ///< 1: a file goes with the offer
};

struct OwnRegistration {
  RegistrationOffer offer;
  FileDescriptor file;
};

struct DeviceShape {
  uint32_t stripes = 1;  ///< rings of plans to each peer, and so the most stripes of a call
  uint32_t slots = 16;
  uint32_t slot_bytes = 4096;
  uint32_t slots_per_slice = 1;    ///< most slots that a slice fills
  uint32_t message_parts = 1;      ///< rings of messages to each peer
  uint32_t multicast_stripes = 0;  ///< 0: too many or too few ranks
  uint32_t multicast_slots = 8;
  uint64_t short_bytes = 0;  ///< most that a rank sends another in full packets; 0: no mailboxes

  /// Behind a ring's last slot, for slices that begin there.
  uint32_t spare_slots() const { return slots_per_slice - 1; }
  /// A rank's rings take at most 320 MiB of its device, where possible. A pure function.
  static DeviceShape of(uint32_t rank_count);
};

/// The longest slice of at most so many bytes. Where a block's threads take several turns, a slice is whole
/// turns: what is left over would take about as long as a turn.
uint32_t longest_slice(uint32_t most_bytes);

/// Whether long slices pay where all ranks share a device's memory: every message is a reference, no step
/// relays what it receives (short slices make a pipeline of relays), and there is no scratch, which holds a
/// round. A pure function of what the ranks agree on. `plans`: of all ranks.
bool refers_always(std::span<const Plan> plans, ReduceOp op);
/// The slice of a chunk that travels by reference: no slot bounds it, so the fewest slices of one length, in
/// whole turns.
uint32_t referenced_slice(uint64_t chunk_bytes);

/// How the calls of a plan use the rings. A pure function of what the ranks agree on.
struct DeviceCut {
  uint32_t channels = 1;      ///< rings of a stripe to each peer
  uint32_t most_stripes = 1;  ///< of a call
  uint32_t slots = 16;        ///< slices by value that a ring holds
  uint32_t slice_bytes = 0;   ///< of the longest slice

  /// `plans`: of all ranks.
  static DeviceCut of(std::span<const Plan> plans, const DeviceShape& shape);
  /// The cut of a plan that refers_always, for chunks of at most so many bytes: a reference takes one slot.
  DeviceCut by_reference(const DeviceShape& shape, uint64_t chunk_bytes) const;
};

/// Stripes of a call, at most `most`, with one block each for each lane. `multiprocessors`: of the smallest
/// device; `ranks_on_device`: of the fullest. A pure function of what the ranks agree on.
uint32_t device_stripes(uint64_t call_bytes, uint32_t most, uint32_t multiprocessors,
                        uint32_t ranks_on_device);

/// The same for a call in packets.
uint32_t short_stripes(uint64_t call_bytes, uint32_t multiprocessors, uint32_t ranks_on_device);

/// In device memory.
struct DeviceBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  const void* scale = nullptr;  ///< the scalar of a pre-multiplied sum, read by the kernel; or null
};

/// What a program runs, for status pages and messages.
struct DeviceMark {
  uint64_t word = 0;  ///< agreed_word
  uint64_t count = 0;
  uint64_t counts = 0;  ///< counts_digest
  uint64_t signature_seed = 0;
  bool is_collective = true;           ///< counts in the sequence of collectives
  std::vector<Message> messages = {};  ///< if the program is a group of messages
};

/// A bound plan, or group of messages, in device memory. Made and owned by a DeviceRank.
struct DeviceProgram {
  virtual ~DeviceProgram() = default;
  DeviceMark mark;
  uint32_t lanes = 0;       ///< blocks on the device
  bool by_packets = false;  ///< a short call, which has a kernel of its own
};

class DeviceRank;
struct DeviceRetire {
  DeviceRank* owner = nullptr;
  void operator()(DeviceProgram* program) const;
};
using DeviceProgramHold = std::unique_ptr<DeviceProgram, DeviceRetire>;

struct DeviceStream {
  bool internal = true;    ///< true: the rank's own stream, for blocking calls
  void* handle = nullptr;  ///< false: this CUstream; null is the legacy default stream
};

struct DeviceSnapshot {
  enum class State : uint8_t {
    kFine,
    kBlocked,  ///< the last launch left unfinished: relaunch, unless `goes_on` or `queued_ns`
    kFailed,   ///< a message of another call came: see `obstacle`
  };
  State state = State::kFine;
  bool goes_on = false;     ///< kBlocked: the launch stays and needs no relaunch
  bool is_running = false;  ///< an operation outside captures, or a relaunch, is queued and has not ended
  uint64_t launches = 0;    ///< launches that have left, and rounds of launches that stay
  uint64_t sequence = 0;    ///< collectives that have ended
  uint64_t waited_ns = 0;   ///< kBlocked: time since a lane moved; `goes_on`: up to the end of the last round
  uint64_t queued_ns = 0;   ///< kBlocked: time since a relaunch that has not begun; 0: there is none
  Obstacle obstacle;
  /// Of the last launch that left; null: unknown. Shared, because the rank may drop the program meanwhile.
  std::shared_ptr<const DeviceProgram> program;
  bool may_be_replayed = false;  ///< a graph has captured an operation
  Status device = {};            ///< an error: the device has failed, and runs nothing any more
};

struct DeviceOperation {
  DeviceRank* rank = nullptr;
  DeviceProgram* program = nullptr;
  DeviceBuffers buffers;
  DeviceStream stream;
  bool meets_all = false;  ///< no rank's part ends before all ranks have begun
};

class DeviceRank {
 public:
  virtual ~DeviceRank() = default;
  virtual const DeviceIdentity& identity() const = 0;
  virtual const DeviceShape& shape() const = 0;

  /// The file of the links' memory, for ranks of other processes; -1: the device has none.
  virtual int file() const = 0;

  /// `ranks`: by rank. Tests access to each peer's memory, so no rank may begin an operation before all are
  /// connected. Errors: kUnsupported (two ranks cannot be joined), kPeerLost, kOutOfMemory.
  virtual Status connect(std::span<const DevicePeer> ranks) = 0;

  // Multicast memory: after connect, if all devices differ and support it. All ranks end a step before any
  // begins the next. If a rank fails, all drop the memory.

  /// Rank 0: the object's file, until bind_multicast. Else -1.
  virtual int multicast_file() const = 0;
  /// `file`: rank 0's, if rank 0 is in another process. Errors: kUnsupported, kSystemError.
  virtual Status add_to_multicast(const FileDescriptor* file) = 0;
  /// Errors: kOutOfMemory, kSystemError.
  virtual Status bind_multicast() = 0;
  virtual void drop_multicast() = 0;

  /// `channels`: DeviceCut::channels. Drop the program before the rank. Errors: kOutOfMemory, kSystemError.
  virtual Result<DeviceProgramHold> bind(const Plan& plan, std::span<const Geometry> stripes,
                                         uint32_t channels, const BindOptions& options, DeviceMark mark) = 0;
  /// For packets: all ranks' plans pass suits_packets, no rank sends another more than
  /// shape().short_bytes, `stripes` come from short_stripes().
  virtual Result<DeviceProgramHold> bind_short(const Plan& plan, std::span<const Geometry> stripes,
                                               const BindOptions& options, DeviceMark mark) = 0;
  /// No message of `mark` goes to the rank itself.
  virtual Result<DeviceProgramHold> bind_messages(const BindOptions& options, DeviceMark mark) = 0;
  /// The memory is reused once no operation can use it: never if a graph may.
  virtual void retire(DeviceProgram* program) = 0;

  // Any thread:

  /// Queues a copy within the device, in order with the rank's operations. Errors: as Devices::launch.
  virtual Status copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) = 0;
  /// Makes later work of each user stream in `later` run after the present work of all in `earlier`. Errors:
  /// kInvalidArgument and kInvalidUsage (not all in one capture), which change nothing; kSystemError.
  virtual Status order_streams(std::span<void* const> earlier, std::span<void* const> later) = 0;
  /// Whether all launches outside captures have ended. Errors: a failure of the device.
  virtual Result<bool> is_done() = 0;
  virtual DeviceBuffers barrier_buffers() const = 0;
  /// Whether `other` belongs to the same communicator and process.
  virtual bool has_peer(const DeviceRank& other) const = 0;
  /// Whether the last operation of Devices::launch was queued, after a launch that failed. On the launching
  /// thread.
  virtual bool was_launched() const = 0;
  /// Whether the last operation of Devices::launch was queued outside captures. On the launching thread.
  virtual bool has_begun() const = 0;
  /// At least `bytes` at one address for host and device; valid until the next call.
  virtual Result<std::byte*> shared_scratch(uint64_t bytes) = 0;
  /// Ok if the device can use `address`. `name`: of the argument.
  virtual Status check_pointer(std::string_view name, const void* address) const = 0;

  // Registered memory, which peers of other processes and devices access directly. On the thread that makes
  // the rank's calls, with no call under way:

  /// One past the largest number of a registered memory; the smallest is 1.
  virtual uint32_t registration_end() const = 0;
  /// Errors: kUnsupported: peers cannot map the memory, or it overlaps registered memory.
  virtual Result<OwnRegistration> offer_registration(const void* address, uint64_t bytes) const = 0;
  /// Maps all ranks' offers as registered memory `number`, for use by calls from now on. Both lists are by
  /// rank. Errors: kUnsupported, kPeerLost, kOutOfMemory, kSystemError; then nothing is registered.
  virtual Status open_registration(uint32_t number, std::span<const RegistrationOffer> offers,
                                   std::span<const FileDescriptor> files) = 0;
  virtual void close_registration(uint32_t number) = 0;

  virtual DeviceSnapshot look() = 0;
  /// After kBlocked, on the RelaunchThread only. Errors: kSystemError; then the operation has failed.
  virtual Status relaunch() = 0;
  /// After a failure, releases the stream of the operation whose relaunch does not begin. Only the first
  /// time.
  virtual void give_up() = 0;
  /// Makes every launch leave soon and fail its operation, and those that begin later leave at once. Any
  /// thread.
  virtual void abort() = 0;
  /// After `abort`, called again and again: whether the rank's launches use no buffers any more. True as well
  /// on a device that has failed. Any thread.
  virtual bool has_stopped() = 0;
};

inline void DeviceRetire::operator()(DeviceProgram* program) const {
  owner->retire(program);
}

class StagingDevice;

class Devices {
 public:
  /// `queues`, `yields`: Config::device_queues, gpu_yield. Errors: kUnsupported: this build or machine has no
  /// CUDA; the text says what to do.
  static Result<std::unique_ptr<Devices>> find(uint32_t queues, bool yields = false);
  virtual ~Devices() = default;
  /// Errors: kInvalidArgument (no such device), kOutOfMemory, kUnsupported, kSystemError.
  virtual Result<std::unique_ptr<DeviceRank>> open_rank(int device, uint32_t rank, uint32_t rank_count) = 0;
  /// For a rank with staged calls. Errors: as open_rank.
  virtual Result<std::unique_ptr<StagingDevice>> open_staging(int device, uint32_t rank) = 0;
  /// Queues operations of ranks of one communicator (has_peer), one per rank, behind each rank's earlier
  /// ones. Does not wait. Any thread.
  ///
  /// Ranks on one device share a launch if there is room, and if they are on one stream or wait for all
  /// others anyway. Ranks without a user's stream go on one stream. All operations are queued before a stream
  /// waits, so the streams may be the same.
  ///
  /// Errors: kInvalidArgument (a stream of another device) and kInvalidUsage (a failed capture), with nothing
  /// queued; kSystemError, with some queued: was_launched.
  virtual Status launch(std::span<const DeviceOperation> operations) = 0;
  /// Zeroed memory of an open device, until `free`. Errors: kOutOfMemory, kSystemError.
  virtual Result<void*> allocate(int device, uint64_t bytes) = 0;
  /// Frees `memory`, which no work of the device may use still. False: `allocate` did not make it.
  virtual bool free(void* memory) = 0;
  /// Ok if the host may access `address`.
  virtual Status check_host_pointer(std::string_view name, const void* address) const = 0;
  /// Keeps the rank for ever: queued work or a graph may need it.
  virtual void keep_for_good(std::unique_ptr<DeviceRank> rank) = 0;
  /// Whether `address` is device memory, which the host cannot read.
  virtual bool is_device_memory(const void* address) const = 0;
};

}  // namespace tutti
