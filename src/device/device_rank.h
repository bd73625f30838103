// DeviceRank: what a rank on a CUDA device has besides the rest of its Communicator: its links in device
// memory, its bound programs, and its launches. Devices: those that ranks of this process use.
//
// One build runs with and without CUDA: this header knows nothing of it, and builds without the toolkit have
// a source that refuses (device_rank_none.cc). With CUDA: cuda_rank.h.
//
// Life of an operation: Devices::launch queues the kernel on a stream. Where the device surely has room for
// all that it waits for, the kernel stays until the operation has ended. Elsewhere it leaves when it has
// waited for too long; then whoever looks next (the RelaunchThread) launches it again on a stream of the
// rank's own, while the user's stream waits for the word `done`. At most one launch of a rank runs at a time:
// operations are ordered across streams by an event.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// What a rank tells the others of its device; all zero for a rank in host memory.
struct DeviceIdentity {
  std::array<char, 16> uuid{};
  uint32_t is_device = 0;
  uint32_t has_failed = 0;       ///< the device cannot be used; the rank will say why
  uint32_t multiprocessors = 0;  ///< that its ranks may keep busy together
  uint32_t has_file = 0;  ///< 1: other processes reach its links' memory by the file that goes with its facts
  uint32_t multicasts =
      0;                   ///< 1: the device can have multicast memory; of rank 0: and it has made the object
  uint64_t links_key = 0;  ///< finds that memory inside its process
};

/// A rank as a device rank connects to it.
struct DevicePeer {
  DeviceIdentity identity;
  bool same_process = false;
  const FileDescriptor* file = nullptr;  ///< of a rank of another process that has one
};

/// What a rank tells the others of memory that it registers: made by one DeviceRank, read by another.
struct RegistrationOffer {
  std::array<std::byte, 128> ticket{};
  uint32_t has_file = 0;  ///< 1: a file goes with it
};

/// A rank's own, with its file.
struct OwnRegistration {
  RegistrationOffer offer;
  FileDescriptor file;
};

/// The links between ranks on devices, as config's slots are for those in host memory.
struct DeviceShape {
  uint32_t stripes = 1;  ///< most that a call is cut into
  uint32_t slots = 16;
  uint32_t slot_bytes = 4096;
  uint64_t short_bytes = 0;  ///< largest message that packets carry; 0: the ranks have no mailboxes

  /// All of a rank's rings take at most 64 MiB of its device where that is possible. A pure function.
  static DeviceShape of(uint32_t rank_count);
};

/// Stripes of a call of so many bytes, a block of the device each: as many as its multiprocessors serve, of
/// the device that has fewest (DeviceIdentity::multiprocessors). `ranks_on_device`: on the device that has
/// most. A pure function of what ranks agree on.
uint32_t device_stripes(uint64_t call_bytes, const DeviceShape& shape, uint32_t multiprocessors,
                        uint32_t ranks_on_device);

/// The same for a call whose message packets carry.
uint32_t short_stripes(uint64_t call_bytes, uint32_t multiprocessors, uint32_t ranks_on_device);

/// What one operation works on; device memory.
struct DeviceBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  const void* scale = nullptr;  ///< the scalar of a pre-multiplied sum, read when the kernel runs; or null
};

/// What a program runs, for status pages and texts.
struct DeviceMark {
  uint64_t word = 0;  ///< agreed_word
  uint64_t count = 0;
  uint64_t signature_seed = 0;
  bool is_collective = true;           ///< counts in the sequence of collectives
  std::vector<Message> messages = {};  ///< where it is a group of messages
};

/// A bound plan, or group of messages, in device memory. Made and owned by a DeviceRank.
struct DeviceProgram {
  virtual ~DeviceProgram() = default;
  DeviceMark mark;
  uint32_t lanes = 0;       ///< blocks of the device
  bool by_packets = false;  ///< of a short call: run by a kernel of its own
};

class DeviceRank;
/// Gives a program back to the rank that made it.
struct DeviceRetire {
  DeviceRank* owner = nullptr;
  void operator()(DeviceProgram* program) const;
};
using DeviceProgramHold = std::unique_ptr<DeviceProgram, DeviceRetire>;

/// Where an operation is ordered.
struct DeviceStream {
  bool internal = true;    ///< the rank's own stream, for blocking calls
  void* handle = nullptr;  ///< else a CUstream; null is the legacy default stream
};

/// How the rank's launches stand.
struct DeviceSnapshot {
  enum class State : uint8_t {
    kFine,
    kBlocked,  ///< the last launch has left unfinished and waits to be launched again, or `goes_on`
    kFailed,   ///< a message of another call has come: `obstacle`
  };
  State state = State::kFine;
  bool goes_on = false;     ///< kBlocked: the launch has stayed and goes on by itself
  bool is_running = false;  ///< an operation outside captures has been queued and has not ended
  uint64_t launches = 0;    ///< and rounds of launches that stay: those that have left
  uint64_t sequence = 0;    ///< collectives that have ended
  uint64_t waited_ns = 0;   ///< kBlocked: since a lane has moved; `goes_on`: until the last round left
  Obstacle obstacle;
  /// Of the launch that has left last; null: not known. Shared: its rank may forget it meanwhile.
  std::shared_ptr<const DeviceProgram> program;
  bool may_be_replayed = false;  ///< some operation was captured into a graph
};

/// An operation of a rank, before it is launched.
struct DeviceOperation {
  DeviceRank* rank = nullptr;
  DeviceProgram* program = nullptr;
  DeviceBuffers buffers;
  DeviceStream stream;
  bool meets_all = false;  ///< no rank's part ends before all have begun
};

class DeviceRank {
 public:
  virtual ~DeviceRank() = default;
  virtual const DeviceIdentity& identity() const = 0;
  virtual const DeviceShape& shape() const = 0;

  /// The file of its links' memory, for ranks of other processes; -1: the device has none.
  virtual int file() const = 0;

  /// Once all ranks' identities are known: `ranks` by rank. Each peer's memory is written and read back, so
  /// none may have begun an operation before all are connected. Errors: kUnsupported (a pair that cannot be
  /// joined), kPeerLost, kOutOfMemory.
  virtual Status connect(std::span<const DevicePeer> ranks) = 0;

  // Multicast memory, once all have connected, where all devices are different and can have it. In steps that
  // all ranks end before any begins the next; after a failure of any rank all drop it.

  /// The object's file at rank 0, until it binds; else -1.
  virtual int multicast_file() const = 0;
  /// `file`: of rank 0, where that is in another process. Errors: kUnsupported, kSystemError.
  virtual Status add_to_multicast(const FileDescriptor* file) = 0;
  /// Errors: kOutOfMemory, kSystemError.
  virtual Status bind_multicast() = 0;
  virtual void drop_multicast() = 0;

  /// To be given up before the rank. Errors: kOutOfMemory, kSystemError.
  virtual Result<DeviceProgramHold> bind(const Plan& plan, std::span<const Geometry> stripes,
                                         const BindOptions& options, DeviceMark mark) = 0;
  /// As `bind`, for packets: every rank's plan is one-shot (cuda::is_one_shot), the message is at most
  /// shape().short_bytes, and `stripes` are short_stripes().
  virtual Result<DeviceProgramHold> bind_short(const Plan& plan, std::span<const Geometry> stripes,
                                               const BindOptions& options, DeviceMark mark) = 0;
  /// Of mark.messages, none of them to the rank itself.
  virtual Result<DeviceProgramHold> bind_messages(const BindOptions& options, DeviceMark mark) = 0;
  /// The memory serves others once no operation can use it: never where a graph may hold it.
  virtual void retire(DeviceProgram* program) = 0;

  // Any thread:

  /// Queues a copy within the device's memory, in order with the rank's operations. Errors: as
  /// Devices::launch.
  virtual Status copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) = 0;
  /// What each stream of the user's in `later` is given from now on runs after what each of `earlier` has
  /// been given. Errors: kInvalidArgument, kInvalidUsage (a capture that not all are part of), and then
  /// nothing has changed; kSystemError.
  virtual Status order_streams(std::span<void* const> earlier, std::span<void* const> later) = 0;
  /// Whether all that was launched outside captures has ended. Errors: what failed on the device.
  virtual Result<bool> is_done() = 0;
  /// What a barrier reads and writes.
  virtual DeviceBuffers barrier_buffers() const = 0;
  /// Whether the other rank is one of the same communicator and process.
  virtual bool has_peer(const DeviceRank& other) const = 0;
  /// Whether the kernel of the last operation that Devices::launch was given has been queued, if it has
  /// failed. By the thread that launches.
  virtual bool was_launched() const = 0;
  /// Whether the last operation that Devices::launch was given is under way: queued, and outside captures. By
  /// the thread that launches.
  virtual bool has_begun() const = 0;
  /// Memory that host and device reach at one address, at least `bytes`, valid until the next call.
  virtual Result<std::byte*> shared_scratch(uint64_t bytes) = 0;
  /// Ok when the device can work on all of [address, address + bytes). `name`: of the argument.
  virtual Status check_pointer(std::string_view name, const void* address) const = 0;

  // Regions: memory that peers of other processes and devices load from and store to where it lies. By the
  // thread that makes the rank's calls, while none is under way:

  /// One past the largest number of a region; the smallest is 1.
  virtual uint32_t registration_end() const = 0;
  /// Errors: kUnsupported: peers cannot map the memory, or it overlaps a region.
  virtual Result<OwnRegistration> offer_registration(const void* address, uint64_t bytes) const = 0;
  /// Reaches what all ranks have offered, by rank: a region of that number, from now on used by calls whose
  /// buffers lie in it. `files`: by rank, of the other ranks that have one. Errors: kUnsupported, kPeerLost,
  /// kOutOfMemory, kSystemError; then it is none.
  virtual Status open_registration(uint32_t number, std::span<const RegistrationOffer> offers,
                                   std::span<const FileDescriptor> files) = 0;
  virtual void close_registration(uint32_t number) = 0;

  virtual DeviceSnapshot look() = 0;
  /// After kBlocked: goes on. By the relaunch_thread only. Errors: kSystemError; then the operation has ended
  /// as failed.
  virtual Status relaunch() = 0;
  /// Every launch leaves at its next look, and ends its operation as failed. Any thread.
  virtual void abort() = 0;
};

inline void DeviceRetire::operator()(DeviceProgram* program) const {
  owner->retire(program);
}

class StagingDevice;

/// Devices that ranks of this process use.
class Devices {
 public:
  /// `queues`: Config::device_queues. Errors: kUnsupported: no CUDA in this build or on this machine, and
  /// what to do.
  static Result<std::unique_ptr<Devices>> find(uint32_t queues);
  virtual ~Devices() = default;
  /// Errors: kInvalidArgument (no such device), kOutOfMemory, kUnsupported, kSystemError.
  virtual Result<std::unique_ptr<DeviceRank>> open_rank(int device, uint32_t rank, uint32_t rank_count) = 0;
  /// For a rank whose calls are staged. Errors: as open_rank.
  virtual Result<std::unique_ptr<StagingDevice>> open_staging(int device, uint32_t rank) = 0;
  /// Queues operations of ranks of one communicator (has_peer), one of each, behind all earlier ones of each.
  /// Does not wait. Ranks on one device share a launch, all on the device at once, as far as it has room for
  /// them, if they are on one stream or meet all others anyway; those without a stream of the user's are put
  /// on one. No stream waits for an operation before all are queued, so the streams may be one and the same.
  /// Any thread. Errors: kInvalidArgument (a stream of another device), kInvalidUsage (a capture that has
  /// failed); then nothing was queued. kSystemError; then what was_launched has been, and others have not.
  virtual Status launch(std::span<const DeviceOperation> operations) = 0;
  /// Zeroed memory of a device that `open_rank` or `open_staging` has opened, until it is freed. Errors:
  /// kOutOfMemory, kSystemError.
  virtual Result<void*> allocate(int device, uint64_t bytes) = 0;
  /// Frees it, when the device has done its work. False: it is none of `allocate`.
  virtual bool free(void* memory) = 0;
  /// Ok when the host may touch the memory at `address`.
  virtual Status check_host_pointer(std::string_view name, const void* address) const = 0;
  /// The rank is never destroyed: what is queued, or a graph holds, may still need it.
  virtual void keep_for_good(std::unique_ptr<DeviceRank> rank) = 0;
  /// Whether `address` is in a device's memory, which the host cannot read.
  virtual bool is_device_memory(const void* address) const = 0;
};

}  // namespace tutti
