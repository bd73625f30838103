// Backend: torch's process group over tutti.
//
// CPU tensors: a call that the program waits for (async_op=False) runs in the calling thread. Other calls run
// on a host stream of tutti, in the order of the calls, and each has its own completion. mail.h holds point
// to point. CUDA tensors: device.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "device.h"
#include "joining.h"
#include "mail.h"
#include "work.h"

namespace tutti_torch {

struct GroupOptions : c10d::Backend::Options {
  explicit GroupOptions(std::chrono::milliseconds deadline = kBackendDefaultTimeout)
      : c10d::Backend::Options("tutti", deadline) {}
  c10::intrusive_ptr<c10d::Backend::Options> clone() const override {
    return c10::make_intrusive<GroupOptions>(*this);
  }

  bool reproducible = false;  ///< same bits whatever the algorithm, message size and placement
  int threads = 0;            ///< that work on one long operation of a rank; 0: tutti's default
};

class Backend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// The group that a backend is made for; null: unknown, as after split, merge and shrink. Then a barrier
  /// that names no device is one of the hosts.
  using Owner = c10::intrusive_ptr<c10d::ProcessGroup>;

  /// Joins the other ranks through the store. Blocks until all have come, at most for the timeout.
  static c10::intrusive_ptr<Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const c10::intrusive_ptr<GroupOptions>& options,
                                            const Owner& owner = {});
  /// Leaves all groups, without waiting for their operations. For the program's end: an interpreter that ends
  /// ends each thread that asks for its lock, in the middle of C++.
  static void leave_all();
  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
          c10::intrusive_ptr<GroupOptions> options, tutti_comm_t* comm, const Owner& owner = {});
  ~Backend() override;

  const std::string getBackendName() const override { return "tutti"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options,
                                          const int& rank, const int& size) override;
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& excluded, int flags,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  /// Joins the other ranks on the device now; else the first call with CUDA tensors does.
  void eagerConnectSingleDevice(at::Device device) override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  /// Ends all operations of the group with an error, on all ranks.
  void abort() override;
  /// Waits for this rank's operations, then leaves the group.
  void shutdown() override;
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    observers_->add_hook(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override { observers_->remove_hook(id); }
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;

 private:
  /// Of a call on the stream.
  struct Pending;

  c10::intrusive_ptr<Work> make_work(Description what, std::atomic<uint64_t>& sequence);
  WorkPtr issue(const c10::intrusive_ptr<Work>& work, bool is_async, const Call& call);
  /// The same for a call without more to keep.
  WorkPtr issue(Description what, const Call& call);
  WorkPtr issue_on_device(const c10::intrusive_ptr<Work>& work, bool is_async, const Call& call);
  DeviceSide& side_on(at::Device device);
  at::Device device_of_barrier(const c10d::BarrierOptions& options) const;
  bool serves_only_cuda() const;
  c10::intrusive_ptr<Work> make_numbered(Description what, uint64_t sequence);
  WorkPtr issue_together(Description what, std::vector<DeviceCall> calls);
  static bool is_on_stream(const Work& work) { return dynamic_cast<const StreamWork*>(&work) != nullptr; }
  void run_now(Work& work, tutti_comm_t* comm, const Call& call);
  void queue(const c10::intrusive_ptr<Work>& work, tutti_comm_t* comm, const Call& call);
  WorkPtr post_on_device(Description what, const Call& call);
  WorkPtr post(Description what, const std::function<void(const c10::intrusive_ptr<Work>&)>& post_it);
  static void on_done(void* context, tutti_result_t result, const char* text);
  void watch(const c10::intrusive_ptr<Work>& work);
  bool is_coalescing();
  void add_to_batch(const c10::intrusive_ptr<Work>& work);
  tutti_comm_t* usable() const;
  tutti_op_t op_for(const c10d::ReduceOp& op, const at::Tensor& tensor, Memory& memory);
  void check_root(int64_t root) const;
  void check_blocks(const at::Tensor& whole, const at::Tensor& part, const char* what) const;
  std::chrono::milliseconds deadline_of(std::chrono::milliseconds given) const;
  void leave(bool waits);
  /// all_gather of a list; the profiler's range has the title, if there is one.
  WorkPtr gather_list(const std::vector<Tensors>& outputs, const Tensors& inputs,
                      const c10d::AllgatherOptions& options, const char* title);
  WorkPtr all_reduce_sparse_now(at::Tensor& tensor, const c10d::AllreduceOptions& options);

  c10::intrusive_ptr<c10d::Store> store_;  ///< for this instance of the group alone
  c10::intrusive_ptr<GroupOptions> options_;
  const c10::weak_intrusive_ptr<c10d::ProcessGroup> owner_;  ///< which owns this
  std::shared_ptr<Observers> observers_ = std::make_shared<Observers>();
  Mail mail_;
  /// Null after an abort or the end. abort() may take it while another thread is in a call.
  std::atomic<tutti_comm_t*> comm_;
  tutti_host_stream_t* stream_ = nullptr;
  /// Made by the first call with CUDA tensors.
  std::unique_ptr<DeviceSide> device_;
  std::atomic<DeviceSide*> side_{nullptr};  ///< the same, for threads that do not hold issuing_
  JoinStop join_stop_;                      ///< ends the join of that first call
  /// One thread at a time uses the communicator. Recursive: a completion may come inside the call that asks
  /// for it, and its callbacks may issue calls.
  std::recursive_mutex issuing_;
  std::chrono::milliseconds deadline_set_{0};
  /// For the communicator in host memory, and for the communicator on the device. By the bits of the factor:
  /// NaN has no place in the order of numbers, so that a map would find any other factor for it.
  std::map<std::pair<tutti_type_t, uint64_t>, tutti_op_t> premultiplied_[2];
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint64_t> messages_{0};  ///< the sequence number of sends and receives
  uint64_t monitored_ = 0;
  uint64_t shrunk_ = 0;
  /// Guards the next three. Messages take this lock alone: a blocking collective of another thread holds
  /// issuing_, and may need these messages to end.
  std::mutex batch_;
  bool is_coalescing_ = false;  ///< between startCoalescing and endCoalescing
  std::vector<c10::intrusive_ptr<Work>> coalesced_;
  std::vector<DeviceCall> deferred_;  ///< calls with CUDA tensors
  /// Works that are not complete. Shared with them: they may outlive the backend.
  struct Open {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t count = 0;
  };
  std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace tutti_torch
