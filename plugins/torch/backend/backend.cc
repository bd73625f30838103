#include "backend.h"

#include <Python.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace tutti_torch {
namespace {

constexpr const char* kIdKey = "tutti/id";
constexpr const char* kDeviceIdKey = "id/device";
// Operators with a factor that a backend keeps, before it frees them all.
constexpr size_t kPremultipliedMax = 64;

/// Where the tensors of a call are. Errors: on several devices.
at::Device place_of(const Description& what) {
  std::optional<at::Device> place;
  for (const Tensors* tensors : {&what.inputs, &what.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!place) place = tensor.device();
      TORCH_CHECK(tensor.device() == *place, "tutti: the call has tensors on ", *place, " and on ",
                  tensor.device(), "; the tensors of a call are on one device");
    }
  }
  return place.value_or(what.device);
}

c10::intrusive_ptr<GroupOptions> own_options(const c10::intrusive_ptr<c10d::Backend::Options>& given,
                                             const GroupOptions& parent) {
  if (const auto own = c10::dynamic_intrusive_pointer_cast<GroupOptions>(given)) return own;
  auto options = c10::make_intrusive<GroupOptions>(parent);
  if (given) {
    options->timeout = given->timeout;
    options->group_name = given->group_name;
    options->group_desc = given->group_desc;
    options->global_ranks_in_group = given->global_ranks_in_group;
  }
  return options;
}

/// Releases the GIL in its scope, if this thread holds it: threads that call Python may have to end first.
class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

/// The groups that may live.
class Groups {
 public:
  static Groups& all() {
    static auto* const groups = new Groups;  // outlives everything
    return *groups;
  }
  c10::intrusive_ptr<Backend> add(c10::intrusive_ptr<Backend> group) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(groups_, [](const auto& one) { return one.expired(); });
    groups_.emplace_back(group);
    return group;
  }
  std::vector<c10::intrusive_ptr<Backend>> living() {
    const std::scoped_lock lock(mutex_);
    std::vector<c10::intrusive_ptr<Backend>> living;
    for (const auto& one : groups_) {
      if (auto group = one.lock()) living.push_back(std::move(group));
    }
    return living;
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Backend>> groups_;
};

}  // namespace

struct Backend::Pending {
  c10::intrusive_ptr<Work> work;
};

c10::intrusive_ptr<Backend> Backend::create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const c10::intrusive_ptr<GroupOptions>& options,
                                            const Owner& owner) {
  constexpr int kHostMemory = 0;
  const Meeting meeting{.store = *store, .key = kIdKey, .rank = rank, .size = size};
  const Joined joined = join_ranks(meeting, *options, kHostMemory, nullptr);
  // A later group of the same name must not find the keys of this one.
  const auto own = c10::make_intrusive<c10d::PrefixStore>("tutti/" + joined.name, store);
  return Groups::all().add(c10::make_intrusive<Backend>(own, rank, size, options, joined.comm, owner));
}

void Backend::leave_all() {
  for (const auto& group : Groups::all().living()) {
    group->leave(/*waits=*/false);
    group->observers_->stop();
  }
}

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 c10::intrusive_ptr<GroupOptions> options, tutti_comm_t* comm, const Owner& owner)
    : c10d::Backend(rank, size),
      store_(store),
      options_(std::move(options)),
      owner_(owner),
      mail_(rank, size, store),
      comm_(comm) {
  throw_on(tutti_host_stream_create(&stream_));
  init();
}

Backend::~Backend() {
  leave(/*waits=*/false);
  observers_->stop();
}

void Backend::shutdown() {
  leave(/*waits=*/true);
}

/// Destroys what the group holds. Without `waits` operations that are not complete are aborted.
void Backend::leave(bool waits) {
  const WithoutGil released;
  join_stop_.stop();  // the joining thread has the lock that this thread needs
  mail_.stop("the process group was destroyed");
  if (DeviceSide* const side = side_.load()) side->leave(waits);
  tutti_comm_t* comm = comm_.exchange(nullptr);
  if (comm != nullptr) {
    const bool is_idle = tutti_host_stream_query(stream_) != TUTTI_IN_PROGRESS;
    (void)(waits || is_idle ? tutti_comm_destroy(comm) : tutti_comm_abort(comm));
  }
  const std::scoped_lock lock(issuing_);
  (void)tutti_host_stream_destroy(std::exchange(stream_, nullptr));
}

void Backend::abort() {
  const WithoutGil released;
  tutti_comm_t* const comm = comm_.exchange(nullptr);
  join_stop_.stop();
  if (comm != nullptr) (void)tutti_comm_abort(comm);
  if (DeviceSide* const side = side_.load()) side->abort();
  mail_.stop("the process group was aborted");
}

tutti_comm_t* Backend::usable() const {
  tutti_comm_t* comm = comm_.load();
  TORCH_CHECK(comm != nullptr, kGroupHasEnded);
  return comm;
}

std::chrono::milliseconds Backend::deadline_of(std::chrono::milliseconds given) const {
  const auto wanted = given == c10d::kUnsetTimeout ? options_->timeout : given;
  return std::clamp(wanted, std::chrono::milliseconds(1), kLongestDeadline);
}

c10::intrusive_ptr<Work> Backend::make_work(Description what, std::atomic<uint64_t>& sequence) {
  return make_numbered(std::move(what), ++sequence);
}

c10::intrusive_ptr<Work> Backend::make_numbered(Description what, uint64_t sequence) {
  what.timeout = deadline_of(what.timeout);
  const at::Device place = place_of(what);
  if (place.is_cuda())
    return c10::make_intrusive<StreamWork>(place, rank_, std::move(what), sequence, observers_);
  return c10::make_intrusive<Work>(rank_, std::move(what), sequence, observers_);
}

/// The group's part on the device. The first call makes it, together with the other ranks.
DeviceSide& Backend::side_on(at::Device device) {
  (void)usable();
  if (!device_) {
    const Meeting meeting{.store = *store_, .key = kDeviceIdKey, .rank = rank_, .size = size_};
    const int number = TUTTI_CUDA_DEVICE(static_cast<int>(device.index()));
    device_ = std::make_unique<DeviceSide>(join_ranks(meeting, *options_, number, &join_stop_).comm, device);
    side_ = device_.get();
    try {
      join_stop_.check();
    } catch (...) {  // the stop came when the ranks had joined, and maybe before side_ was set
      device_->abort();
      throw;
    }
  }
  TORCH_CHECK(device_->device() == device, "tutti: the tensor is on ", device, ", but rank ", rank_,
              " of this group is on ", device_->device(), "; a rank uses one device");
  return *device_;
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  const std::scoped_lock lock(issuing_);
  if (device.is_cuda()) (void)side_on(device);
}

Backend::WorkPtr Backend::issue(Description what, const Call& call) {
  const bool is_async = what.is_async;
  return issue(make_work(std::move(what), sequence_), is_async, call);
}

Backend::WorkPtr Backend::issue(const c10::intrusive_ptr<Work>& work, bool is_async, const Call& call) {
  const std::scoped_lock lock(issuing_);
  if (is_on_stream(*work)) return issue_on_device(work, is_async, call);
  tutti_comm_t* comm = usable();
  if (deadline_set_ != work->getTimeout()) {
    throw_on(tutti_comm_set_timeout(comm, static_cast<uint64_t>(work->getTimeout().count())));
    deadline_set_ = work->getTimeout();
  }
  if (is_async || is_coalescing()) {
    queue(work, comm, call);
  } else {
    run_now(*work, comm, call);
  }
  return work;
}

Backend::WorkPtr Backend::issue_on_device(const c10::intrusive_ptr<Work>& work, bool is_async,
                                          const Call& call) {
  const DeviceCall one{.work = c10::static_intrusive_pointer_cast<StreamWork>(work), .call = call};
  {
    const std::scoped_lock lock(batch_);
    if (is_coalescing_) {
      deferred_.push_back(one);
      return work;
    }
  }
  side_on(one.work->device()).issue({one}, is_async);
  watch(work);
  return work;
}

void Backend::run_now(Work& work, tutti_comm_t* comm, const Call& call) {
  const tutti_result_t result = call(comm, TUTTI_BLOCKING);
  const auto error = error_of(result, tutti_last_error(), work.getTimeout());
  work.complete(error);
  if (error) std::rethrow_exception(error);
}

void Backend::queue(const c10::intrusive_ptr<Work>& work, tutti_comm_t* comm, const Call& call) {
  throw_on(call(comm, tutti_stream_host(stream_)), work->getTimeout());
  watch(work);
  add_to_batch(work);
  auto pending = std::make_unique<Pending>(Pending{work});
  const tutti_result_t result = tutti_host_stream_notify(stream_, on_done, pending.get());
  if (result == TUTTI_SUCCESS) {
    (void)pending.release();
    return;
  }
  // Out of memory: the operation is under way, so wait for it here.
  const tutti_result_t ended = tutti_host_stream_synchronize(stream_);
  work->complete(error_of(ended, tutti_last_error(), work->getTimeout()));
}

void Backend::on_done(void* context, tutti_result_t result, const char* text) {
  const std::unique_ptr<Pending> pending(static_cast<Pending*>(context));
  pending->work->complete(error_of(result, text, pending->work->getTimeout()));
}

/// Counts the work until it is complete.
void Backend::watch(const c10::intrusive_ptr<Work>& work) {
  {
    const std::scoped_lock lock(open_->mutex);
    ++open_->count;
  }
  work->when_complete([open = open_](const std::exception_ptr&) {
    const std::scoped_lock lock(open->mutex);
    --open->count;
    open->changed.notify_all();
  });
}

void Backend::waitForPendingWorks() {
  const WithoutGil released;
  std::unique_lock lock(open_->mutex);
  open_->changed.wait(lock, [&] { return open_->count == 0; });
}

void Backend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  onCompletionHook_ = hook;
  observers_->set_info_hook(std::move(hook));
}

Backend::WorkPtr Backend::post(Description what,
                               const std::function<void(const c10::intrusive_ptr<Work>&)>& post_it) {
  const auto work = make_work(std::move(what), messages_);
  post_it(work);
  watch(work);
  add_to_batch(work);
  return work;
}

/// A message between devices: an operation of the group's communicator, in the order of the calls.
Backend::WorkPtr Backend::post_on_device(Description what, const Call& call) {
  return issue(make_work(std::move(what), messages_), /*is_async=*/true, call);
}

Backend::WorkPtr Backend::send(Tensors& tensors, int peer, int tag) {
  if (only(tensors).is_cuda()) {
    return post_on_device(
        {.type = c10d::OpType::SEND, .title = "tutti:send", .inputs = tensors},
        [memory = movable(tensors[0]), peer, tag](tutti_comm_t* comm, tutti_stream_t stream) {
          return tutti_send(memory.data, memory.count, memory.type, peer, tag, comm, stream);
        });
  }
  return post({.type = c10d::OpType::SEND, .title = "tutti:send", .inputs = tensors},
              [&](const auto& work) { mail_.send(only(tensors), peer, tag, work); });
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
  if (only(tensors).is_cuda()) {
    return post_on_device(
        {.type = c10d::OpType::RECV, .title = "tutti:recv", .inputs = tensors, .outputs = tensors},
        [memory = movable(tensors[0]), source, tag](tutti_comm_t* comm, tutti_stream_t stream) {
          return tutti_recv(memory.data, memory.count, memory.type, source, tag, comm, stream);
        });
  }
  return post({.type = c10d::OpType::RECV, .title = "tutti:recv", .inputs = tensors, .outputs = tensors},
              [&](const auto& work) { mail_.receive(only(tensors), source, tag, work); });
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK(only(tensors).is_cpu(), "tutti: a tensor on ", tensors[0].device(),
              " cannot be received from any rank: a CUDA stream must know the sender; name it, or receive "
              "into a CPU tensor");
  return post({.type = c10d::OpType::RECVANYSOURCE,
               .title = "tutti:recvAnySource",
               .inputs = tensors,
               .outputs = tensors},
              [&](const auto& work) { mail_.receive(only(tensors), Mail::kAny, tag, work); });
}

void Backend::startCoalescing() {
  // torch does not end a batch whose calls raised. Its tensors are freed after the lock, because freeing them
  // may need Python's lock.
  decltype(coalesced_) works;
  decltype(deferred_) deferred;
  const std::scoped_lock lock(batch_);
  works.swap(coalesced_);
  deferred.swap(deferred_);
  is_coalescing_ = true;
}

bool Backend::is_coalescing() {
  const std::scoped_lock lock(batch_);
  return is_coalescing_;
}

void Backend::add_to_batch(const c10::intrusive_ptr<Work>& work) {
  const std::scoped_lock lock(batch_);
  if (is_coalescing_) coalesced_.push_back(work);
}

Backend::WorkPtr Backend::endCoalescing() {
  std::unique_lock lock(batch_);
  is_coalescing_ = false;
  const auto works = std::exchange(coalesced_, {});
  auto deferred = std::exchange(deferred_, {});
  lock.unlock();
  TORCH_CHECK(works.empty() || deferred.empty(), "tutti: a batch has CPU tensors and CUDA tensors; make two");
  Description what{.type = c10d::OpType::COALESCED};
  if (!deferred.empty()) return issue_together(std::move(what), std::move(deferred));
  for (const auto& work : works)
    what.outputs.insert(what.outputs.end(), work->outputs().begin(), work->outputs().end());
  const auto joined = c10::make_intrusive<Work>(rank_, std::move(what), sequence_, observers_);
  join(joined, works);
  return joined;
}

/// Issues the calls of a batch as one operation of the device. The last work stands for all.
Backend::WorkPtr Backend::issue_together(Description what, std::vector<DeviceCall> calls) {
  const std::scoped_lock lock(issuing_);
  what.device = calls[0].work->device();
  for (const auto& [work, call] : calls)
    what.outputs.insert(what.outputs.end(), work->outputs().begin(), work->outputs().end());
  const auto joined = make_numbered(std::move(what), sequence_);
  calls.push_back({.work = c10::static_intrusive_pointer_cast<StreamWork>(joined), .call = no_call});
  DeviceSide& side = side_on(calls[0].work->device());
  side.issue(calls, /*is_async=*/true);
  for (const auto& [work, call] : calls) watch(work);
  return joined;
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  return create(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                own_options(options, *options_));
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& options,
                                                 const int& rank, const int& size) {
  return create(store, rank, size, own_options(options, *options_));
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                  const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const std::scoped_lock lock(issuing_);
  const std::vector<int> ranks(excluded.begin(), excluded.end());
  tutti_comm_t* comm = nullptr;
  throw_on(tutti_comm_shrink(usable(), ranks.data(), static_cast<int>(ranks.size()),
                             flags & TUTTI_SHRINK_ABORT, &comm, nullptr),
           options_->timeout);
  int rank = 0;
  int size = 0;
  throw_on(tutti_comm_rank(comm, &rank));
  throw_on(tutti_comm_count(comm, &size));
  const auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("shrunk/", ++shrunk_), store_);
  const auto own = own_options(options, *options_);
  return Groups::all().add(c10::make_intrusive<Backend>(store, rank, size, own, comm));
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
}

c10d::ErrorType Backend::getError() {
  tutti_comm_t* comm = comm_.load();
  tutti_result_t error = TUTTI_ABORTED;
  if (comm != nullptr && tutti_comm_async_error(comm, &error) != TUTTI_SUCCESS) error = TUTTI_ABORTED;
  const DeviceSide* const side = side_.load();
  if (error == TUTTI_SUCCESS && side != nullptr) error = side->state();
  switch (error) {
    case TUTTI_SUCCESS: return c10d::ErrorType::SUCCESS;
    case TUTTI_TIMEOUT: return c10d::ErrorType::TIMEOUT;
    case TUTTI_PEER_LOST: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

tutti_op_t Backend::op_for(const c10d::ReduceOp& op, const at::Tensor& tensor, Memory& memory) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return operator_of(op, tensor, memory);
  const auto supplement = c10::dynamic_intrusive_pointer_cast<c10d::PreMulSumSupplement>(op.supplement_);
  TORCH_CHECK(supplement, "tutti: PREMUL_SUM has no factor");
  const auto& given = supplement->tensor_factor;
  const double factor = given.defined() ? given.item<double>() : supplement->double_factor;
  const std::scoped_lock lock(issuing_);
  DeviceSide* const side = tensor.is_cuda() ? &side_on(tensor.device()) : nullptr;
  tutti_comm_t* const comm = side != nullptr ? side->usable() : usable();
  auto& premultiplied = premultiplied_[side != nullptr ? 1 : 0];
  const std::pair key(memory.type, std::bit_cast<uint64_t>(factor));
  const auto known = premultiplied.find(key);
  if (known != premultiplied.end()) return known->second;
  if (premultiplied.size() >= kPremultipliedMax) {
    if (side != nullptr) side->drain();
    (void)tutti_host_stream_synchronize(stream_);
    for (const auto& [_, old] : premultiplied) (void)tutti_op_destroy(old, comm);
    premultiplied.clear();
  }
  const auto scalar = at::scalar_tensor(factor, at::toRealValueType(tensor.scalar_type()));
  tutti_op_t made = TUTTI_SUM;
  throw_on(tutti_op_create_premul_sum(&made, scalar.data_ptr(), memory.type, comm));
  premultiplied[key] = made;
  return made;
}

void Backend::check_root(int64_t root) const {
  TORCH_CHECK(root >= 0 && root < size_, "tutti: the root is ", root, ", but the group has ranks 0 to ",
              size_ - 1);
}

}  // namespace tutti_torch
