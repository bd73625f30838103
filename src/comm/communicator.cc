// Running calls: from the shape of a call to its bound operation, and the loop that drives it.
#include "comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/clock.h"
#include "core/hash.h"
#include "plan/price.h"

namespace tutti {
namespace {

// Bindings kept per communicator. A training step has a few dozen shapes; past the limit all are dropped,
// which costs each one binding.
constexpr size_t kMaxBound = 512;
// Slices of a pulled message below this size cost less when they are copied twice.
constexpr uint64_t kLeastPulledSlice = 4096;
// Messages of at least this size go by reference on a device, where a copy costs memory bandwidth and a
// reference two flags. Estimates.
constexpr uint64_t kDeviceReferenceBytes = 4096;
constexpr uint64_t kDeviceDirectWriteBytes = 65536;
// Groups of messages kept bound: both directions of a few peers.
constexpr size_t kMaxBoundMessages = 16;

/// Where the last of the blocks ends.
uint64_t end_of(const std::vector<Extent>& blocks) {
  uint64_t end = 0;
  for (const Extent& block : blocks) end = std::max(end, block.offset + block.bytes);
  return end;
}

uint64_t largest_block(const VariableBlocks& blocks) {
  const auto& all = blocks.input.size() > blocks.output.size() ? blocks.input : blocks.output;
  uint64_t largest = 0;
  for (const Extent& block : all) largest = std::max(largest, block.bytes);
  return largest;
}

uint64_t block_bytes(const CallShape& shape) {
  return shape.count * type_bytes(shape.type);
}

}  // namespace

size_t Communicator::ShapeHash::operator()(const CallShape& shape) const {
  return std::hash<uint64_t>()(agreed_word(shape) * 31 + shape.count) ^
         std::hash<uint64_t>()(shape.scale_bits) ^ (shape.in_place ? 1u : 0u);
}

Status Communicator::run(const Call& call) {
  return run_whole([&]() -> Status {
    if (device_ != nullptr && call.shape.purpose != CallPurpose::kUsers) [[unlikely]]
      return run_through_host(call);
    TUTTI_TRY(begin(call));
    return drive();
  });
}

Status Communicator::run(const MessageCall& call) {
  return run_whole([&]() -> Status {
    TUTTI_TRY(begin(call));
    return drive();
  });
}

Status Communicator::run(const Message& message) {
  if (is_on_device()) return run(MessageCall{.messages = {message}, .collective = false, .shape = {}});
  return run_whole([&]() -> Status {
    if (has_error()) return error();
    message_list_.assign(1, message);
    messages_are_collective_ = false;
    TUTTI_TRY(start_messages(prepare_messages()));
    return drive();
  });
}

Status Communicator::run_again(const void* send, void* recv) {
  return run_whole([&]() -> Status {
    if (has_error()) [[unlikely]]
      return error();
    header_->status.sequence.store(++sequence_, std::memory_order_release);
    if (!last_->is_short) {
      TUTTI_TRY(start(*last_, send, recv));
      return drive();
    }
    current_ = last_->operation.get();
    const uint16_t signature = call_signature(last_->signature_seed, sequence_);
    if (current_->start_short(send, recv, signature, waiter_.polls()) != Progress::kDone) return drive();
    header_->status.completed.store(sequence_, std::memory_order_release);
    waiter_.moved();
    return Status::ok();
  });
}

/// Runs the current operation to its end in the calling thread.
Status Communicator::drive() {
  for (;;) {
    const Progress progress = poll();
    if (progress == Progress::kDone || progress == Progress::kMismatch) [[likely]]
      return finish(progress);
    if (progress == Progress::kMoved) waiter_.moved();
    TUTTI_TRY(wait());
  }
}

/// Of a call that has failed.
void Communicator::leave_buffers() const {
  for (Waiter waiter(WaitMode::kYield); !buffers_are_free();) waiter.pause();
}

Status Communicator::begin(const Call& call) {
  if (device_ != nullptr) return issue(call, DeviceStream{});
  if (staging_ != nullptr && call.shape.purpose == CallPurpose::kUsers) [[unlikely]]
    return begin_staged(call);
  return begin_on_host(call);
}

Status Communicator::begin_on_host(const Call& call) {
  if (has_error()) [[unlikely]]
    return error();
  if (last_ == nullptr || call.blocks != nullptr || !(last_->shape == call.shape))
    TUTTI_TRY(find_bound(call));
  enter(last_->word, last_->shape.count);
  return start(*last_, call.send, call.recv);
}

/// Begins a run of a bound operation that has been entered on the status page.
Status Communicator::start(Bound& bound, const void* send, void* recv) {
  if (bound.may_refer) {
    header_->status.sequence.store(sequence_);
    TUTTI_TRY(look_again());
  }
  current_ = bound.operation.get();
  Buffers buffers{.input = send, .output = recv};
  if (bound.shape.collective == Collective::kBarrier) {
    buffers.input = barrier_bytes_.data();
    buffers.output = barrier_bytes_.data() + kLineBytes / 2;
  }
  if (!one_process_ && bound.input_bytes + bound.output_bytes >= process_.config().reference_bytes) {
    buffers.input_shared = process_.heap().contains(buffers.input, bound.input_bytes);
    buffers.output_shared = process_.heap().contains(buffers.output, bound.output_bytes);
  }
  if (current_->places()) expose_buffer(buffers);
  const uint16_t signature = call_signature(bound.signature_seed, sequence_);
  if (bound.is_long) [[unlikely]] {
    start_long(bound, buffers, signature);
  } else {
    current_->start(buffers, signature);
  }
  return Status::ok();
}

/// Before the first use of a peer's buffer: once a rank has failed, and has not seen this one inside the call
/// (StatusPage::may_read_peers), its buffers are its caller's again.
Status Communicator::look_again() {
  if (header_->alert.state.load() == Alert::kQuiet) [[likely]]
    return Status::ok();
  await_alert();
  if (!has_error()) return Status::ok();
  header_->status.in_messages.store(0, std::memory_order_release);
  header_->status.completed.store(sequence_, std::memory_order_release);
  return error();
}

void Communicator::start_long(Bound& bound, const Buffers& buffers, uint16_t signature) {
  if (bound.tries_pulling) choose_carriage(bound);
  bound.operation->start(buffers, signature);
  if (bound.stripes.empty()) return;
  striped_ = true;
  waiter_ = make_waiter();
  for (const auto& stripe : bound.stripes) stripe->start(buffers, signature);
  workers_->begin(*bound.operation, bound.stripes, wait_mode());
}

void Communicator::finish_long(Bound& bound) {
  if (bound.tries_pulling) bound.carriage_trials.end(now_ns() - bound.began_ns);
  striped_ = false;
  waiter_ = make_waiter();
}

Progress Communicator::poll_stripes() {
  const Progress progress = workers_->advance(waiter_.polls());
  if (progress == Progress::kMismatch) current_ = workers_->stuck();
  return progress;
}

/// The engine and the connections in turn. An operation is left when the network has taken all of it: what it
/// sent arrives though this rank computes.
Progress Communicator::poll_remote() {
  const Progress progress = draining_ ? Progress::kDone : current_->advance(1);
  if (progress == Progress::kMismatch) return progress;
  // The usual end of a receive: whatever else has come is of later calls, which will ask for it.
  if (progress == Progress::kDone && !draining_ && !remote_->undrained_peer()) return progress;
  const bool moved = remote_->advance();
  draining_ = progress == Progress::kDone && remote_->undrained_peer();
  if (progress == Progress::kDone && !draining_) return progress;
  return moved || progress == Progress::kMoved ? Progress::kMoved : Progress::kBlocked;
}

WaitMode Communicator::wait_mode() const {
  if (beside_callers_) return WaitMode::kBeside;
  return striped_ ? striped_wait_mode_ : wait_mode_;
}

void Communicator::wait_beside_callers(bool beside) {
  beside_callers_ = beside;
  waiter_ = make_waiter();
}

/// Offers the receive buffer of this call to the peers, if they can write it.
void Communicator::expose_buffer(Buffers& buffers) {
  if (!one_process_ && !buffers.output_shared) return;
  ExposedBuffer& window = header_->window;
  window.address.store(reinterpret_cast<uint64_t>(buffers.output), std::memory_order_relaxed);
  window.in_heap.store(buffers.output_shared ? 1 : 0, std::memory_order_relaxed);
  window.call.store(sequence_, std::memory_order_release);
  buffers.call = sequence_;
}

void Communicator::choose_carriage(Bound& bound) {
  const bool pulls = bound.carriage_trials.begin();
  bound.operation->allow_pulling(pulls);
  for (const auto& stripe : bound.stripes) stripe->allow_pulling(pulls);
  bound.began_ns = now_ns();
}

Status Communicator::begin(const MessageCall& call) {
  if (device_ != nullptr) return issue(call, DeviceStream{});
  return staging_ != nullptr ? begin_staged(call) : begin_on_host(call);
}

Status Communicator::begin_on_host(const MessageCall& call) {
  if (has_error()) return error();
  message_list_ = call.messages;
  messages_are_collective_ = call.collective;
  const uint64_t word = agreed_word(call.shape);
  if (call.collective) {
    const uint16_t signature = call_signature(signature_seed(word, call.shape.count), sequence_ + 1);
    for (Message& message : message_list_) message.signature = signature ^ bytes_signature(message.bytes);
  }
  const bool may_refer = prepare_messages();
  if (call.collective) enter(word, call.shape.count);
  return start_messages(may_refer);
}

/// Binds the messages of message_list_. Says whether ranks may use each other's buffers.
bool Communicator::prepare_messages() {
  for (const SelfCopy& copy : take_self_copies(message_list_, rank_))
    std::memmove(copy.to, copy.from, copy.bytes);
  const uint64_t reference_bytes = bind_options().reference_bytes;
  bool may_refer = false;
  for (Message& message : message_list_) {
    may_refer = may_refer || message.bytes >= reference_bytes;
    // NULL is a legal address of nothing, but not for memcpy.
    if (message.bytes == 0) message.buffer = barrier_bytes_.data();
    message.shared = process_.heap().contains(message.buffer, message.bytes);
  }
  messages_ = bind_messages();
  return may_refer;
}

Status Communicator::start_messages(bool may_refer) {
  current_ = messages_;
  header_->status.in_messages.store(1, may_refer ? std::memory_order_seq_cst : std::memory_order_relaxed);
  if (may_refer) TUTTI_TRY(look_again());
  current_->start({}, 0);
  return Status::ok();
}

Operation* Communicator::bind_messages() {
  for (const auto& bound : bound_messages_) {
    if (bound->rebind_messages(message_list_)) return bound.get();
  }
  auto fresh = Operation::bind_messages(message_list_, bind_options(), links_);
  if (bound_messages_.size() < kMaxBoundMessages) {
    bound_messages_.push_back(std::move(fresh));
    return bound_messages_.back().get();
  }
  auto& oldest = bound_messages_[oldest_bound_messages_++ % kMaxBoundMessages];
  oldest = std::move(fresh);
  return oldest.get();
}

/// Marks the call on the status page and counts it. Plain stores to a line that peers read only when they
/// wait long.
void Communicator::enter(uint64_t word, uint64_t count) {
  StatusPage& page = header_->status;
  page.call.store(word, std::memory_order_relaxed);
  page.count.store(count, std::memory_order_relaxed);
  page.sequence.store(++sequence_, std::memory_order_release);
}

Status Communicator::finish(Progress progress) {
  if (device_ != nullptr) return finish_on_device();
  if (progress == Progress::kMismatch) [[unlikely]]
    return fail(mismatch_with(current_->obstacle().peer));
  if (shows_wait_) [[unlikely]]
    clear_wait();
  if (current_ == messages_) header_->status.in_messages.store(0, std::memory_order_relaxed);
  if (last_ != nullptr && last_->is_long && current_ == last_->operation.get()) finish_long(*last_);
  header_->status.completed.store(sequence_, std::memory_order_release);
  waiter_.moved();
  return copies_out_ ? finish_staged() : Status::ok();
}

Status Communicator::wait() {
  if (device_ != nullptr) return wait_for_device();
  const uint64_t waited_ns = waiter_.pause();
  if (has_error()) [[unlikely]]
    return fail(error());
  if (waited_ns == 0) return Status::ok();
  return check_progress(waited_ns);
}

Facts Communicator::facts() const {
  if (device_ != nullptr) {
    return {.can_publish = false,
            .can_multicast = has_multicast_,
            .can_reference = (one_process_ && ranks_on_device_ == rank_count_) || !registrations_.empty(),
            .cores = rank_count_,
            .slots = device_->shape().slots / 2,
            .slot_bytes = device_->shape().slot_bytes};
  }
  return {.can_publish = host_count_ == 1,
          .can_reference = one_process_,
          .host_count = host_count_,
          .host_of = host_count_ > 1 ? std::span<const uint32_t>(host_of_) : std::span<const uint32_t>(),
          .cores = cores_,
          .slots = shape_.slots / 2,
          .slot_bytes = shape_.slot_bytes};
}

Result<const Algorithm*> Communicator::choose(const Request& request, uint32_t* row) const {
  const std::string& forced = process_.config().algorithm;
  if (!forced.empty()) {
    const Algorithm* algorithm = find_algorithm(request.collective, forced);
    if (algorithm != nullptr && algorithm->supports(request, facts())) return algorithm;
  }
  const uint64_t short_bytes = device_ != nullptr ? device_->shape().short_bytes : 0;
  const Algorithm* algorithm = process_.choice().choose(request, facts(), row, short_bytes);
  if (algorithm == nullptr) {
    return Status(Code::kUnsupported,
                  format("no algorithm serves %s on %u ranks",
                         std::string(collective_name(request.collective)).c_str(), rank_count_));
  }
  return algorithm;
}

Status Communicator::find_bound(const Call& call) {
  if (call.blocks != nullptr) {
    const bool is_repeated =
        variable_ != nullptr && variable_->shape == call.shape && *variable_blocks_ == *call.blocks;
    if (!is_repeated) {
      auto bound = bind(call);
      TUTTI_TRY(bound.status());
      variable_ = std::move(*bound);
      variable_blocks_ = call.blocks;
    }
    last_ = variable_.get();
    return Status::ok();
  }
  auto found = bound_.find(call.shape);
  if (found == bound_.end()) {
    if (bound_.size() >= kMaxBound) {
      bound_.clear();
      last_ = nullptr;
    }
    auto bound = bind(call);
    TUTTI_TRY(bound.status());
    found = bound_.emplace(call.shape, std::move(*bound)).first;
  }
  last_ = found->second.get();
  return Status::ok();
}

BindOptions Communicator::bind_options() const {
  const Config& config = process_.config();
  if (device_ != nullptr) {
    return {.reproducible = options_.reproducible,
            .reference_bytes = std::min(config.reference_bytes, kDeviceReferenceBytes),
            .slots = device_->shape().slots,
            .slot_bytes = device_->shape().slot_bytes};
  }
  const uint64_t reference_bytes = config.reference_bytes;
  return {.reproducible = options_.reproducible,
          .streaming_bytes = config.streaming_bytes,
          .reference_bytes = remote_ != nullptr ? std::min(reference_bytes, network_traits_.reference_bytes)
                                                : reference_bytes,
          .slots = shape_.slots,
          .slot_bytes = shape_.slot_bytes,
          .least_slice_bytes = shares_no_host() && network_traits_.prefers_whole_slots ? shape_.slot_bytes
                                                                                       : SliceLimits{}.least};
}

Result<std::unique_ptr<Communicator::Bound>> Communicator::bind(const Call& call) {
  auto bound = std::make_unique<Bound>();
  bound->shape = call.shape;
  bound->word = agreed_word(call.shape);
  bound->signature_seed = signature_seed(bound->word, call.shape.count);
  const bool barrier = call.shape.collective == Collective::kBarrier;
  const uint64_t bytes = barrier ? 1 : block_bytes(call.shape);
  const Request request{.collective = call.shape.collective,
                        .rank_count = rank_count_,
                        .root = call.shape.root,
                        .block_bytes = call.blocks != nullptr ? largest_block(*call.blocks) : bytes,
                        .type = call.shape.type,
                        .op = barrier ? ReduceOp::kBitOr : call.shape.op,
                        .reproducible = options_.reproducible,
                        .in_place = call.shape.in_place,
                        .variable_counts = call.blocks != nullptr};
  auto algorithm = choose(request, &bound->choice_row);
  TUTTI_TRY(algorithm.status());
  bound->algorithm = *algorithm;
  const Plan plan = bound->algorithm->make(request, facts(), rank_);
  bound->input_bytes = call.blocks != nullptr ? end_of(call.blocks->input)
                                              : bytes * input_blocks(plan.collective, rank_count_);
  bound->output_bytes = call.blocks != nullptr ? end_of(call.blocks->output)
                                               : bytes * output_blocks(plan.collective, rank_count_);
  BindOptions options = bind_options();
  options.type = call.shape.type;
  options.op = request.op;
  options.premul_scalar_bits = call.shape.scale_bits;
  // Of a variable-count call only `bytes`, of all its blocks, is known to every rank.
  options.message_bytes = call.blocks != nullptr ? bytes : std::max(bound->input_bytes, bound->output_bytes);
  const uint64_t direct_write_bytes = process_.config().direct_write_bytes;
  options.places =
      options.message_bytes >=
      (device_ != nullptr ? std::min(direct_write_bytes, kDeviceDirectWriteBytes) : direct_write_bytes);
  bound->tries_pulling = !one_process_ && rank_count_ > 1 && device_ == nullptr &&
                         options.message_bytes >= process_.config().pull_bytes;
  if (bound->tries_pulling) options.pull_bytes = kLeastPulledSlice;
  const bool by_packets = device_ != nullptr && goes_by_packets(*bound, request);
  const uint32_t count = stripe_count(options.message_bytes, by_packets);
  std::vector<Geometry> stripes;
  for (uint32_t index = 0; index < count; ++index) {
    const Stripe stripe{index, count};
    stripes.push_back(call.blocks != nullptr
                          ? Geometry::variable(plan, call.blocks->input, call.blocks->output, stripe)
                          : Geometry::uniform(plan, bytes, stripe));
  }
  if (device_ != nullptr) return bind_on_device(std::move(bound), plan, stripes, options, by_packets);
  for (uint32_t index = 0; index < count; ++index) {
    if (index == 0) {
      bound->operation = Operation::bind(plan, stripes[0], options, links_);
    } else {
      bound->stripes.push_back(Operation::bind(plan, stripes[index], options, *stripe_links_[index - 1]));
    }
  }
  bound->may_refer = call.blocks != nullptr || bound->tries_pulling || options.places ||
                     options.message_bytes >= options.reference_bytes;
  bound->is_long = bound->tries_pulling || count > 1;
  bound->is_short = bound->operation->is_short() && !barrier && count == 1 && remote_ == nullptr;
  return bound;
}

/// How many threads work on a call of so many bytes: agreed by all ranks, as both settings are. One where
/// connections carry links: they belong to one thread.
uint32_t Communicator::stripe_count(uint64_t call_bytes, bool by_packets) const {
  if (by_packets) return short_stripes(call_bytes, multiprocessors_, ranks_on_device_);
  if (device_ != nullptr)
    return device_stripes(call_bytes, device_->shape(), multiprocessors_, ranks_on_device_);
  if (host_count_ > 1) return 1;
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(call_bytes / process_.config().stripe_bytes, 1, options_.threads));
}

std::string Communicator::explain() const {
  if (last_ == nullptr) return "no operation yet";
  const CallShape& shape = last_->shape;
  std::string text =
      describe_call(last_->word, shape.count) + ": algorithm " + std::string(last_->algorithm->name);
  text += process_.config().algorithm == last_->algorithm->name
              ? ", by TUTTI_ALGORITHM"
              : format(", by row %u of the choice table", last_->choice_row);
  if (device_ != nullptr) {
    const char* carriage = last_->program->by_packets ? " by packets" : "";
    return text + format("%s, %u blocks of the device", carriage, last_->program->lanes);
  }
  if (staging_ != nullptr) text += ", through host memory (" + staging_->why() + ")";
  if (!last_->stripes.empty()) text += format(", %zu threads a rank", last_->stripes.size() + 1);
  if (auto predicted = price_us(*last_->algorithm, fixed_request(shape)); predicted) {
    text += format(", predicted %.2f us", *predicted);
  }
  return text;
}

Result<double> Communicator::predict_us(const CallShape& shape) const {
  const Request request = fixed_request(shape);
  auto algorithm = choose(request, nullptr);
  TUTTI_TRY(algorithm.status());
  return price_us(**algorithm, request);
}

Request Communicator::fixed_request(const CallShape& shape) const {
  return {.collective = shape.collective,
          .rank_count = rank_count_,
          .root = shape.root,
          .block_bytes = block_bytes(shape),
          .type = shape.type,
          .op = shape.op,
          .reproducible = options_.reproducible,
          .in_place = shape.in_place};
}

Result<double> Communicator::price_us(const Algorithm& algorithm, const Request& request) const {
  std::vector<Plan> plans;
  plans.reserve(rank_count_);
  for (uint32_t rank = 0; rank < rank_count_; ++rank) plans.push_back(algorithm.make(request, facts(), rank));
  auto price = price_plans(plans, request.block_bytes, {.cores = cores_, .host_of = facts().host_of});
  TUTTI_TRY(price.status());
  return price->microseconds;
}

}  // namespace tutti
