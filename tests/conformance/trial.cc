// See trial.h.
#include "tests/conformance/trial.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/conformance/trial_data.h"
#include "tests/support/values.h"

namespace tutti::test {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr int kGuardValue = 0xa5;

/// Elements from the start of the buffer to the end of its last block.
uint64_t extent_of(const std::vector<Block>& blocks) {
  uint64_t end = 0;
  for (const Block& block : blocks) end = std::max(end, block.offset + block.count);
  return end;
}

/// Memory with guard bytes before, between and after its blocks.
class Buffer {
 public:
  Buffer(const Trial& trial, const std::vector<Block>& blocks) : element_(tutti_type_bytes(trial.type)) {
    bytes_ = extent_of(blocks) * element_ + 2 * kGuardBytes + element_;
    if (trial.memory == Memory::kHeap) {
      void* pointer = nullptr;
      if (tutti_mem_alloc(&pointer, bytes_) == TUTTI_SUCCESS) whole_ = static_cast<std::byte*>(pointer);
      heap_ = true;
    } else {
      whole_ = static_cast<std::byte*>(std::aligned_alloc(64, (bytes_ + 63) / 64 * 64));
    }
    start_ = whole_ + kGuardBytes + (trial.memory == Memory::kShifted ? element_ : 0);
    std::memset(whole_, kGuardValue, bytes_);
  }
  ~Buffer() {
    if (heap_) {
      (void)tutti_mem_free(whole_);
    } else {
      std::free(whole_);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* at(uint64_t element) const { return start_ + element * element_; }

  /// Copies all of it to memory of the place.
  bool send_to(Place& place) {
    if (there_ == nullptr) there_ = place.allocate(bytes_);
    return there_ != nullptr && place.copy(there_, whole_, bytes_);
  }
  bool fetch_from(Place& place) { return place.copy(whole_, there_, bytes_); }
  /// Where the place has what lies at `here`.
  std::byte* there(const std::byte* here) const {
    return there_ == nullptr ? nullptr : there_ + (here - whole_);
  }

  /// True when no byte outside the blocks has changed.
  bool guards_hold(std::vector<Block> blocks) const {
    std::sort(blocks.begin(), blocks.end(),
              [](const Block& a, const Block& b) { return a.offset < b.offset; });
    const std::byte* next = whole_;
    const auto untouched = [](std::byte byte) { return byte == std::byte{kGuardValue}; };
    for (const Block& block : blocks) {
      if (block.count == 0) continue;
      if (!std::all_of(next, static_cast<const std::byte*>(at(block.offset)), untouched)) return false;
      next = at(block.offset + block.count);
    }
    return std::all_of(next, static_cast<const std::byte*>(whole_) + bytes_, untouched);
  }

 private:
  size_t element_;
  size_t bytes_ = 0;
  std::byte* whole_ = nullptr;
  std::byte* start_ = nullptr;
  std::byte* there_ = nullptr;  ///< in the place
  bool heap_ = false;
};

/// A trial on one rank: its buffers, the call, the check.
class Run {
 public:
  Run(Rank& rank, const Trial& trial, Place* elsewhere)
      : rank_(rank),
        trial_(trial),
        place_(elsewhere),
        sends_(send_blocks(trial, rank.rank(), rank.count())),
        recvs_(recv_blocks(trial, rank.rank(), rank.count())) {
    in_place_ = trial.in_place && place();
    send_memory_ = std::make_shared<Buffer>(trial, in_place_ && !send_is_larger() ? recvs_ : sends_);
    recv_memory_ = in_place_ ? send_memory_ : std::make_shared<Buffer>(trial, recvs_);
    send_ = send_memory_->at(in_place_ ? send_place_ : 0);
    recv_ = recv_memory_->at(in_place_ ? recv_place_ : 0);
    fill();
    call_send_ = send_;
    call_recv_ = recv_;
  }

  void go() {
    tutti_op_t op = static_cast<tutti_op_t>(trial_.op);
    if (trial_.op == kPremulOp) {
      alignas(8) std::byte scalar[8] = {};
      if (is_float_type(trial_.type)) {
        store_float(scalar, trial_.type, static_cast<double>(premul_scalar(rank_.rank())));
      } else {
        store_integer(scalar, trial_.type, premul_scalar(rank_.rank()));
      }
      if (!rank_.expect_ok(tutti_op_create_premul_sum(&op, scalar_place(scalar), trial_.type, rank_.comm),
                           trial_.name()))
        return;
    }
    const bool passed = place_ != nullptr ? call_there(op) : rank_.expect_ok(call(op), trial_.name());
    if (trial_.op == kPremulOp) rank_.expect_ok(tutti_op_destroy(op, rank_.comm), trial_.name());
    if (passed) check();
  }

 private:
  /// Where the operator finds its scalar: in turn in host memory and, if there is one, in the place's.
  const void* scalar_place(const std::byte (&scalar)[8]) {
    if (place_ == nullptr || trial_.seed % 2 == 0) return scalar;
    std::byte* there = place_->allocate(sizeof(scalar));
    return there != nullptr && place_->copy(there, scalar, sizeof(scalar)) ? there : nullptr;
  }

  bool call_there(tutti_op_t op) {
    const bool sent = send_memory_->send_to(*place_) && (in_place_ || recv_memory_->send_to(*place_));
    if (!rank_.expect_true(sent, trial_.name() + ": copying buffers there")) return false;
    call_send_ = send_memory_->there(send_);
    call_recv_ = recv_memory_->there(recv_);
    const auto make_call = [&](tutti_stream_t stream) {
      stream_ = stream;
      return call(op);
    };
    if (!rank_.expect_ok(place_->run(make_call), trial_.name())) return false;
    const bool fetched =
        send_memory_->fetch_from(*place_) && (in_place_ || recv_memory_->fetch_from(*place_));
    return rank_.expect_true(fetched, trial_.name() + ": copying buffers back");
  }

  bool send_is_larger() const { return extent_of(sends_) > extent_of(recvs_); }

  /// Where the smaller buffer lies in the larger one. False: the collective has no in place here.
  bool place() {
    const auto me = static_cast<size_t>(rank_.rank());
    switch (trial_.kind) {
      case Kind::kAllToAllV:
      case Kind::kSendRecv:
      case Kind::kBarrier: return false;
      case Kind::kAllGather:
      case Kind::kAllGatherV:
      case Kind::kGather:
        if (recvs_.empty()) return false;
        send_place_ = recvs_[me].offset;
        return true;
      case Kind::kReduceScatter:
      case Kind::kReduceScatterV:
      case Kind::kScatter:
        if (sends_.empty()) return false;
        recv_place_ = sends_[me].offset;
        return true;
      default: return !sends_.empty() && !recvs_.empty();
    }
  }

  void fill() {
    for (size_t block = 0; block < sends_.size(); ++block) {
      fill_block(trial_, rank_.rank(), rank_.count(), static_cast<int>(block), sends_[block].count,
                 send_ + sends_[block].offset * tutti_type_bytes(trial_.type));
    }
  }

  tutti_result_t call(tutti_op_t op) {
    const void* send = sends_.empty() ? nullptr : call_send_;
    void* recv = recvs_.empty() ? nullptr : call_recv_;
    const Trial& t = trial_;
    tutti_comm_t* comm = rank_.comm;
    switch (t.kind) {
      case Kind::kAllReduce: return tutti_all_reduce(send, recv, t.count, t.type, op, comm, stream_);
      case Kind::kReduce: return tutti_reduce(send, recv, t.count, t.type, op, t.root, comm, stream_);
      case Kind::kBroadcast: return tutti_broadcast(send, recv, t.count, t.type, t.root, comm, stream_);
      case Kind::kAllGather: return tutti_all_gather(send, recv, t.count, t.type, comm, stream_);
      case Kind::kReduceScatter: return tutti_reduce_scatter(send, recv, t.count, t.type, op, comm, stream_);
      case Kind::kAllToAll: return tutti_all_to_all(send, recv, t.count, t.type, comm, stream_);
      case Kind::kGather: return tutti_gather(send, recv, t.count, t.type, t.root, comm, stream_);
      case Kind::kScatter: return tutti_scatter(send, recv, t.count, t.type, t.root, comm, stream_);
      case Kind::kBarrier: return tutti_barrier(comm, stream_);
      case Kind::kSendRecv: return exchange();
      default: return variable_call(send, recv, op);
    }
  }

  tutti_result_t variable_call(const void* send, void* recv, tutti_op_t op) {
    const auto [send_counts, send_displacements] = tables(sends_);
    const auto [recv_counts, recv_displacements] = tables(recvs_);
    if (trial_.kind == Kind::kAllGatherV) {
      return tutti_all_gather_v(send, recv, recv_counts.data(), recv_displacements.data(), trial_.type,
                                rank_.comm, stream_);
    }
    if (trial_.kind == Kind::kReduceScatterV) {
      return tutti_reduce_scatter_v(send, recv, send_counts.data(), send_displacements.data(), trial_.type,
                                    op, rank_.comm, stream_);
    }
    return tutti_all_to_all_v(send, send_counts.data(), send_displacements.data(), recv, recv_counts.data(),
                              recv_displacements.data(), trial_.type, rank_.comm, stream_);
  }

  static std::pair<std::vector<size_t>, std::vector<size_t>> tables(const std::vector<Block>& blocks) {
    std::pair<std::vector<size_t>, std::vector<size_t>> result;
    for (const Block& block : blocks) {
      result.first.push_back(block.count);
      result.second.push_back(block.offset);
    }
    return result;
  }

  /// Every rank to every rank; the two directions of a pair have different tags.
  tutti_result_t exchange() {
    const size_t block = trial_.count * tutti_type_bytes(trial_.type);
    (void)tutti_group_start();
    for (int peer = 0; peer < rank_.count(); ++peer) {
      const auto at = static_cast<size_t>(peer) * block;
      (void)tutti_send(call_send_ + at, trial_.count, trial_.type, peer, rank_.rank(), rank_.comm, stream_);
      (void)tutti_recv(call_recv_ + at, trial_.count, trial_.type, peer, peer, rank_.comm, stream_);
    }
    return tutti_group_end();
  }

  void check() {
    const size_t element = tutti_type_bytes(trial_.type);
    std::vector<std::byte> wanted;
    for (size_t block = 0; block < recvs_.size(); ++block) {
      wanted.resize(recvs_[block].count * element);
      expected_block(trial_, rank_.rank(), rank_.count(), static_cast<int>(block), recvs_[block].count,
                     wanted.data());
      if (!same(wanted, recv_ + recvs_[block].offset * element, "recv", block)) return;
    }
    for (size_t block = 0; !in_place_ && block < sends_.size(); ++block) {
      wanted.resize(sends_[block].count * element);
      fill_block(trial_, rank_.rank(), rank_.count(), static_cast<int>(block), sends_[block].count,
                 wanted.data());
      if (!same(wanted, send_ + sends_[block].offset * element, "send, which must not change,", block))
        return;
    }
    const bool inside = in_place_ && send_is_larger();
    if (!recv_memory_->guards_hold(inside ? sends_ : recvs_))
      rank_.fail(trial_.name() + ": wrote outside of recv");
  }

  bool same(const std::vector<std::byte>& wanted, const std::byte* got, const char* what, size_t block) {
    const auto end = wanted.end();
    const auto [first, other] = std::mismatch(wanted.begin(), end, got);
    if (first == end) return true;
    const size_t element = tutti_type_bytes(trial_.type);
    const size_t index = static_cast<size_t>(first - wanted.begin()) / element;
    size_t wrong = 0;
    for (size_t i = 0; i < wanted.size() / element; ++i) {
      wrong += std::memcmp(&wanted[i * element], got + i * element, element) != 0 ? 1 : 0;
    }
    const auto show = [&](const std::byte* at) {
      return is_float_type(trial_.type) ? std::to_string(load_float(at, trial_.type))
                                        : std::to_string(load_integer(at, trial_.type));
    };
    rank_.fail(trial_.name() + ": " + what + " block " + std::to_string(block) + "[" + std::to_string(index) +
               "] is " + show(got + index * element) + ", not " + show(&wanted[index * element]) + "; " +
               std::to_string(wrong) + " of " + std::to_string(wanted.size() / element) + " are wrong");
    return false;
  }

  Rank& rank_;
  const Trial& trial_;
  Place* place_;
  tutti_stream_t stream_ = TUTTI_BLOCKING;
  std::vector<Block> sends_;
  std::vector<Block> recvs_;
  bool in_place_ = false;
  uint64_t send_place_ = 0;
  uint64_t recv_place_ = 0;
  std::shared_ptr<Buffer> send_memory_;
  std::shared_ptr<Buffer> recv_memory_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  std::byte* call_send_ = nullptr;  ///< where the call finds them
  std::byte* call_recv_ = nullptr;
};

}  // namespace

const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {
      "all_reduce", "reduce",  "broadcast",    "all_gather",       "reduce_scatter", "all_to_all", "gather",
      "scatter",    "barrier", "all_gather_v", "reduce_scatter_v", "all_to_all_v",   "send_recv"};
  return kNames[static_cast<int>(kind)];
}

bool kind_reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter ||
         kind == Kind::kReduceScatterV;
}

bool op_defined(int op, tutti_type_t type) {
  if (op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR)
    return !is_float_type(type) && type != TUTTI_BOOL;
  if (op == TUTTI_AVG || op == kPremulOp) return type != TUTTI_BOOL;
  return true;
}

Trial draw_trial(std::span<const int> row, int ranks, uint64_t seed) {
  Trial trial;
  trial.kind = static_cast<Kind>(row[0]);
  trial.type = static_cast<tutti_type_t>(row[1]);
  trial.op = kind_reduces(trial.kind) ? row[2] : 0;
  while (!op_defined(trial.op, trial.type)) trial.op = (trial.op + 1) % kOpChoices;
  trial.root = row[3] == 0 ? 0 : row[3] == 1 ? ranks - 1 : ranks / 2;
  trial.in_place = row[4] != 0;
  trial.seed = seed;
  return trial;
}

std::string Trial::name() const {
  constexpr const char* kMemory[] = {"malloc", "shifted", "heap"};
  return std::string(kind_name(kind)) + "(" + type_text(type) + ", " + op_text(op) + ", root " +
         std::to_string(root) + ", count " + std::to_string(count) + (in_place ? ", in place" : "") + ", " +
         kMemory[static_cast<int>(memory)] + ", seed " + std::to_string(seed) + ")";
}

void run_trial(Rank& rank, const Trial& trial) {
  rank.at(trial.name());
  Run(rank, trial, nullptr).go();
}

void run_trial(Rank& rank, const Trial& trial, Place& place) {
  rank.at(trial.name());
  Run(rank, trial, &place).go();
}

}  // namespace tutti::test
