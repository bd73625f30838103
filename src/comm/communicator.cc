#include "comm/communicator.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/clock.h"
#include "engine/byte_moves.h"
#include "plan/price.h"

namespace tutti {
namespace {

// A training step has a few dozen shapes. At the limit all bound calls of the forced algorithm are dropped,
// and bound again when needed.
constexpr size_t kMaxBound = 512;
/// Steps on all ranks up to which a call is priced exactly: half a second.
constexpr uint64_t kMaxPricedSteps = uint64_t{1} << 20;
/// What may be the longest block of an all_to_all_v to travel with others. Each step costs the prices of a
/// size.
constexpr std::array<uint64_t, 5> kBlockBytes = {64, 256, 1024, 4096, 16384};

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
  return shape.elements() * type_bytes(shape.type);
}

// For an abort when memory is short. Made when the library is loaded, and never destroyed.
const auto* const kAborted = new Status(Code::kAborted, "a rank called tutti_comm_abort");

}  // namespace

CommunicatorParts::CommunicatorParts(Process& its_process, const CommOptions& its_options, uint32_t rank,
                                     uint32_t rank_count)
    : process(its_process),
      options(its_options),
      peers(rank, rank_count),
      shrink(peers, [this] { return process.make_id(peers.host_count() > 1); }) {}

CommunicatorParts::~CommunicatorParts() {
  close();
}

void CommunicatorParts::close() {
  if (std::exchange(is_closed, true)) return;
  process.remove_communicator(&peers);
  if (executor != nullptr) executor->close();
  heartbeat.reset();
  if (exchange != nullptr) exchange->close();
  if (plane != nullptr) plane->close();
  for (const FileDescriptor& life : lives) process.control().forget(life.get());
}

void CommunicatorParts::lose(uint32_t rank, StatusPage::Presence presence, const Status& why) {
  if (peers.lose(rank, presence, why)) shrink.member_lost(rank);
}

Communicator::Communicator(std::unique_ptr<CommunicatorParts>&& parts)
    : host_(parts->host),
      process_(parts->process),
      registrations_(make_registrations(*parts)),
      parts_(std::move(parts)),
      timeout_ms_(parts_->options.timeout_ms),
      forced_(&parts_->options.algorithm) {}

std::unique_ptr<MemoryRegistrations> Communicator::make_registrations(const CommunicatorParts& parts) {
  if (parts.device == nullptr) return nullptr;
  return std::make_unique<MemoryRegistrations>(
      MemoryRegistrations::Options{.process = process_,
                                   .peers = parts.peers,
                                   .device = *parts.device,
                                   .run = [this](const Call& call) { return run(call); },
                                   .forget_bound = [this] { forget_bound(); }});
}

size_t Communicator::ShapeHash::operator()(const CallShape& shape) const {
  return std::hash<uint64_t>()(agreed_word(shape) * 31 + shape.count + shape.piece) ^
         std::hash<uint64_t>()(shape.scale_bits) ^ (shape.in_place ? 1u : 0u);
}

void Communicator::set_timeout(uint64_t timeout_ms) {
  timeout_ms_.store(timeout_ms, std::memory_order_relaxed);
  parts_->executor->set_timeout(timeout_ms);
}

void Communicator::force_algorithm(const std::string& name) {
  if (name == *forced_) return;
  last_ = nullptr;
  last_messages_.reset();
  if (name == options().algorithm) {
    forced_ = &options().algorithm;
    bound_ = &bound_at_first_;
  } else {
    auto& [key, bound] = *bound_by_name_.try_emplace(name).first;
    forced_ = &key;
    bound_ = &bound;
  }
  if (bound_->blocks) host_->gather_blocks(bound_->blocks->algorithm, bound_->blocks->most_bytes);
}

void Communicator::wait_beside_callers(bool beside) {
  beside_callers_ = beside;
  parts_->executor->wait_beside_callers(beside);
}

/// Runs a call in the calling thread. Afterwards the caller has its buffers back.
template <class Whole>
Status Communicator::run_whole(Whole&& call) {
  Status status = guard(beside_callers_, call);
  if (!status) [[unlikely]]
    end_failed(status);
  return status;
}

/// Out of line, so that the short path carries nothing of it. A progress thread's calls belong together.
[[gnu::noinline]] void Communicator::end_failed(Status& status) noexcept {
  if (beside_callers_) status = share_resource_error(status);
  for (Waiter waiter(WaitMode::kYield); !buffers_are_free();) waiter.pause();
}

Status Communicator::run_bound(Executor& executor, const Call& call) {
  const auto bound = find_bound(call);
  TUTTI_TRY(bound.status());
  return executor.run(**bound, call);
}

Status Communicator::run(const Call& call) {
  return run_whole([&]() -> Status {
    if (has_error()) [[unlikely]]
      return error();
    const auto here = parts_->executor->take_in(call);
    TUTTI_TRY(here.status());
    return run_bound(*parts_->executor, *here);
  });
}

Status Communicator::run(const MessageCall& call) {
  return run_whole([&]() -> Status {
    if (has_error()) return error();
    prepare(call);
    return parts_->executor->run(call);
  });
}

Status Communicator::run(const Message& message) {
  if (is_on_device()) return run(MessageCall{.messages = {message}, .collective = false, .shape = {}});
  return run_whole([&]() -> Status { return has_error() ? error() : parts_->host->run(message); });
}

Result<uint32_t> Communicator::run_from_any(Message message) {
  const Status status = run_whole([&]() -> Status {
    if (has_error()) return error();
    const auto sender = parts_->host->await_sender(message.seed);
    TUTTI_TRY(sender.status());
    message.peer = *sender;
    return parts_->host->run(message);
  });
  if (!status) return status;
  return message.peer;
}

Status Communicator::run_again(const void* send, void* recv) {
  return run_whole([&]() -> Status {
    if (host_->run_short(*last_, send, recv)) [[likely]]
      return Status::ok();
    return host_->run_rest(*last_, send, recv);
  });
}

template <class Anything>
Status Communicator::run_staged(const StagedCall<Anything>& staged) {
  StagedExecutor& executor = *parts_->staged;
  const Status status = run_whole([&]() -> Status {
    if (staged.captured == nullptr) TUTTI_TRY(executor.wait_for_stream(staged.number));
    if (has_error()) return error();
    const Anything call = with_scale(staged.call);
    if constexpr (std::is_same_v<Anything, Call>) {
      return run_bound(executor.host(), call);
    } else {
      TUTTI_TRY(executor.host().run(call));
      return executor.show_card_writes(call);
    }
  });
  // Release the stream even after an error.
  executor.release(staged);
  return status;
}

template <class Anything>
Status Communicator::run(std::span<const StagedCall<Anything>> staged) {
  Status status;
  for (const StagedCall<Anything>& one : staged) {
    const Status ran = run_staged(one);
    if (status) status = ran;
  }
  return status;
}

template Status Communicator::run(std::span<const StagedCall<Call>>);
template Status Communicator::run(std::span<const StagedCall<MessageCall>>);

Status Communicator::run(std::span<const Call> pieces) {
  StagedExecutor* const executor = staged();
  if (executor == nullptr || !executor->can_queue()) {
    for (const Call& piece : pieces) {
      const Status ran = run(piece);
      if (!ran) return piece.first_element == 0 ? ran : share_resource_error(ran);
    }
    return Status::ok();
  }
  const auto staged = executor->stage(pieces, DeviceStream{});
  const Status ran = staged ? run<Call>(*staged) : staged.status();
  const Status copied = executor->device().synchronize();
  if (!copied) fail_all(copied);
  return ran ? copied : ran;
}

Status Communicator::begin(const Call& call) {
  if (has_error()) [[unlikely]]
    return error();
  const auto here = parts_->executor->take_in(call);
  TUTTI_TRY(here.status());
  const auto bound = find_bound(*here);
  TUTTI_TRY(bound.status());
  return parts_->executor->begin(**bound, *here);
}

Status Communicator::begin(const MessageCall& call) {
  if (has_error()) return error();
  prepare(call);
  return parts_->executor->begin(call);
}

void Communicator::prepare(const MessageCall& call) {
  if (is_on_device() || !is_all_to_all_v(call.shape)) return;
  if (!bound_->blocks) choose_blocks();
  last_messages_ = call.shape;
}

/// Each rank knows only the sizes of its own blocks. So each block goes its way by its size, which both of
/// its ranks know, and the limit depends on nothing that differs between ranks. All blocks of one size are
/// priced, in messages (direct) and by hosts. The shorter they are, the more is gained.
void Communicator::choose_blocks() {
  BlockChoice choice;
  const Facts facts = parts_->executor->facts();
  const Algorithm& by_messages = *find_algorithm(Collective::kAllToAll, "direct");
  const Algorithm& by_hosts = *find_algorithm(Collective::kAllToAll, "hierarchical");
  Request request{.collective = Collective::kAllToAll, .rank_count = rank_count(), .variable_counts = true};
  // Where some ranks are on devices, cards may carry messages.
  const bool can_gather =
      host_count() > 1 && !parts_->some_rank_is_staged && by_hosts.supports(request, facts);
  if (can_gather && find_algorithm(Collective::kAllToAll, *forced_) != nullptr) {
    choice.most_bytes = *forced_ == by_hosts.name ? facts.slot_bytes : 0;
  } else if (can_gather && parts_->topology != nullptr) {
    const auto gains = [&](uint64_t bytes) {
      request.block_bytes = bytes;
      const PricedRow* row = parts_->topology->choose(request, facts, {&by_messages});
      if (row == nullptr || row->way.algorithm != &by_hosts) return false;
      choice.priced = row;
      return true;
    };
    const auto* const end = std::ranges::partition_point(kBlockBytes, gains);
    if (end != kBlockBytes.begin()) choice.most_bytes = std::min(*(end - 1), facts.slot_bytes);
  }
  if (choice.most_bytes > 0) choice.algorithm = &by_hosts;
  host_->gather_blocks(choice.algorithm, choice.most_bytes);
  bound_->blocks = choice;
}

Result<DeviceOperation> Communicator::prepare_on_device(const Call& call, DeviceStream stream) {
  if (has_error()) return error();
  const auto bound = find_bound(call);
  TUTTI_TRY(bound.status());
  return device()->prepare(**bound, call, stream);
}

Result<DeviceOperation> Communicator::prepare_on_device(const MessageCall& call, DeviceStream stream) {
  if (has_error()) return error();
  return device()->prepare(call, stream);
}

Status Communicator::issue(const Call& call, DeviceStream stream) {
  if (has_error()) return error();
  const auto bound = find_bound(call);
  TUTTI_TRY(bound.status());
  return device()->issue(**bound, call, stream);
}

Status Communicator::issue(const MessageCall& call, DeviceStream stream) {
  return has_error() ? error() : device()->issue(call, stream);
}

Status Communicator::check_pointer(const char* name, const void* address) const {
  if (device() != nullptr) return device()->rank().check_pointer(name, address);
  if (staged() != nullptr) return staged()->device().check_pointer(name, address);
  const Devices* devices = process_.devices_in_use();
  return devices == nullptr ? Status::ok() : devices->check_host_pointer(name, address);
}

Status Communicator::order_streams(std::span<void* const> earlier, std::span<void* const> later) {
  return staged() != nullptr ? staged()->order_streams(earlier, later)
                             : device()->order_streams(earlier, later);
}

const ChoiceTable& Communicator::choice_table() const {
  const ChoiceTable* agreed = parts_->topology == nullptr ? nullptr : parts_->topology->choice();
  return agreed != nullptr ? *agreed : process_.choice();
}

bool Communicator::has_prices() const {
  return parts_->topology != nullptr && parts_->topology->has_prices(device() != nullptr);
}

Status Communicator::choose(const Request& request, BoundCall& call) const {
  const Facts facts = parts_->executor->facts();
  if (!forced_->empty()) {
    const Algorithm* algorithm = find_algorithm(request.collective, *forced_);
    if (algorithm != nullptr && algorithm->supports(request, facts)) {
      call.algorithm = algorithm;
      return Status::ok();
    }
  }
  const uint64_t packet_bytes = parts_->executor->short_bytes(request);
  const TableChoice by_table = choose_by_table(choice_table(), request, facts, packet_bytes);
  Way way = by_table.way;
  if (way.algorithm == nullptr) {
    return {Code::kUnsupported,
            format("no algorithm serves %s on %u ranks",
                   std::string(collective_name(request.collective)).c_str(), rank_count())};
  }
  if (by_table.is_estimate && has_prices()) {
    call.priced = parts_->topology->choose(request, facts, way, packet_bytes);
    way = call.priced->way;
  }
  call.choice_row = by_table.row;
  call.algorithm = way.algorithm;
  call.wants_packets = way.by_packets;
  return Status::ok();
}

Result<BoundCall*> Communicator::find_bound(const Call& call) {
  last_messages_.reset();
  if (call.blocks != nullptr) {
    std::unique_ptr<BoundCall>& variable = bound_->variable;
    const bool is_repeated =
        variable != nullptr && variable->shape == call.shape && *bound_->variable_blocks == *call.blocks;
    if (!is_repeated) {
      auto bound = bind(call);
      TUTTI_TRY(bound.status());
      variable = std::move(*bound);
      bound_->variable_blocks = call.blocks;
    }
    return last_ = variable.get();
  }
  if (last_ != nullptr && last_->shape == call.shape) return last_;
  auto found = bound_->by_shape.find(call.shape);
  if (found == bound_->by_shape.end()) {
    if (bound_->by_shape.size() >= kMaxBound) {
      bound_->by_shape.clear();
      last_ = nullptr;
    }
    auto bound = bind(call);
    TUTTI_TRY(bound.status());
    found = bound_->by_shape.emplace(call.shape, std::move(*bound)).first;
  }
  return last_ = found->second.get();
}

Result<std::unique_ptr<BoundCall>> Communicator::bind(const Call& call) {
  const bool is_barrier = call.shape.collective == Collective::kBarrier;
  const uint64_t bytes = is_barrier ? 1 : block_bytes(call.shape);
  BindRequest wanted{.request = fixed_request(call.shape), .block_bytes = bytes, .blocks = call.blocks.get()};
  Request& request = wanted.request;
  request.block_bytes = call.blocks != nullptr ? largest_block(*call.blocks) : bytes;
  request.variable_counts = call.blocks != nullptr;
  if (is_barrier) request.op = ReduceOp::kBitOr;
  BoundCall bound;
  bound.shape = call.shape;
  bound.word = agreed_word(call.shape);
  bound.counts = call.blocks != nullptr ? counts_digest(call.blocks.get()) : call.shape.piece;
  bound.signature_seed = signature_seed(bound.word, call.shape.count, bound.counts);
  TUTTI_TRY(choose(request, bound));
  wanted.wants_packets = bound.wants_packets;
  bound.input_bytes = call.blocks != nullptr ? end_of(call.blocks->input)
                                             : bytes * input_blocks(request.collective, rank_count());
  bound.output_bytes = call.blocks != nullptr ? end_of(call.blocks->output)
                                              : bytes * output_blocks(request.collective, rank_count());
  return parts_->executor->bind(bound, wanted);
}

void Communicator::forget_bound() {
  last_ = nullptr;
  const auto forget = [](BoundCalls& bound) {
    bound.by_shape.clear();
    bound.variable.reset();
  };
  forget(bound_at_first_);
  for (auto& [name, bound] : bound_by_name_) forget(bound);
}

/// Why no price stands against an estimated row; empty: one does.
std::string Communicator::why_no_price(const PricedRow* priced) const {
  const JobTopology* topology = parts_->topology.get();
  if (topology == nullptr) return "";
  if (has_prices())
    return priced == nullptr || priced->no_price.empty() ? ""
                                                         : priced->no_price + ", on " + topology->about();
  return topology->has_prices(true) ? "calls through host memory have no prices" : topology->about();
}

/// Where the row of the choice table comes from.
std::string Communicator::explain_row(const BoundCall& call) const {
  const uint32_t row = call.choice_row;
  std::string text = format("row %u of the choice table", row);
  const ChoiceTable& table = choice_table();
  const JobTopology* topology = parts_->topology.get();
  if (topology != nullptr && row < topology->tuned_rows()) return text + " (measured on this machine)";
  if (!process_.config().choice_file.empty()) return text + " (TUTTI_CHOICE_FILE)";
  if (row < table.rows().size() && !table.rows()[row].is_estimate) return text + " (measured)";
  const std::string why = why_no_price(call.priced);
  return text + " (an estimate" + (why.empty() ? "" : "; " + why) + ")";
}

/// Of an algorithm that the user has named.
std::string Communicator::by_whom() const {
  if (*forced_ != options().algorithm) return ", by force_algorithm";
  return process_.config().algorithm == *forced_ ? ", by TUTTI_ALGORITHM" : ", by config.algorithm";
}

/// Who has chosen the algorithm, and why.
std::string Communicator::explain_choice(const BoundCall& call) const {
  if (*forced_ == call.algorithm->name) return by_whom();
  const PricedRow* priced = call.priced;
  if (priced == nullptr || priced->price_us <= 0) return ", by " + explain_row(call);
  std::string text = format(", predicted %.2f us", priced->price_us);
  const auto add = [&](const Way& other, double us) {
    text += format(", %s at least %.2f us", name_of(other).c_str(), us);
  };
  if (priced->way != priced->by_table) add(priced->by_table, priced->by_table_us);
  if (priced->next.algorithm != nullptr && priced->next != priced->by_table)
    add(priced->next, priced->next_us);
  if (!priced->limit.empty()) text += "; most is to do on " + priced->limit;
  return text + (priced->way == priced->by_table ? "; by price, as " : "; by price, in place of ") +
         explain_row(call) + ", on " + parts_->topology->about();
}

bool Communicator::goes_as_messages(const CallShape& shape) {
  if (staged() == nullptr || !staged()->uses_cards()) return false;
  last_messages_.reset();
  if (moves_bytes(shape, rank_count())) last_messages_ = shape;
  return last_messages_.has_value();
}

std::string Communicator::explain_blocks() const {
  const auto& [algorithm, most, priced] = *bound_->blocks;
  std::string text = "every block is a message";
  if (algorithm != nullptr) {
    text = "algorithm " + std::string(algorithm->name) +
           (priced == nullptr
                ? by_whom()
                : format(", predicted %.2f us, messages at least %.2f us; by price, on %s", priced->price_us,
                         priced->by_table_us, parts_->topology->about().c_str())) +
           format(", for blocks of up to %llu bytes; longer ones are messages",
                  static_cast<unsigned long long>(most));
  }
  return text + (host_->network() == nullptr ? "" : ", to " + host_->network()->explain());
}

std::string Communicator::explain() const {
  if (last_messages_)
    return describe_call(agreed_word(*last_messages_), last_messages_->count) + ": " +
           (staged() != nullptr ? staged()->explain_messages() : explain_blocks());
  if (last_ == nullptr) return "no operation yet";
  const CallShape& shape = last_->shape;
  std::string text = describe_call(last_->word, shape.count);
  if (shape.piece != 0) text += format(", in pieces of %llu", static_cast<unsigned long long>(shape.piece));
  text += ": algorithm " + std::string(last_->algorithm->name);
  text += explain_choice(*last_);
  text += parts_->executor->explain(*last_);
  if (device() != nullptr || (last_->priced != nullptr && last_->priced->price_us > 0)) return text;
  if (!last_->price) {
    const auto price = this->price(*last_->algorithm, fixed_request(shape));
    if (!price) return text;
    last_->price = *price;
  }
  return text + format(", predicted %s%.2f us", last_->price->is_lower_bound ? "at least " : "",
                       last_->price->microseconds);
}

Result<double> Communicator::predict_us(const CallShape& shape) const {
  const Request request = fixed_request(shape);
  BoundCall call;
  TUTTI_TRY(choose(request, call));
  if (call.priced != nullptr && call.priced->price_us > 0) return call.priced->price_us;
  const auto price = this->price(*call.algorithm, request);
  TUTTI_TRY(price.status());
  return price->microseconds;
}

Request Communicator::fixed_request(const CallShape& shape) const {
  return {.collective = shape.collective,
          .rank_count = rank_count(),
          .root = shape.root,
          .block_bytes = block_bytes(shape),
          .type = shape.type,
          .op = shape.op,
          .reproducible = options().reproducible,
          .in_place = shape.in_place};
}

Result<Price> Communicator::price(const Algorithm& algorithm, const Request& request) const {
  const Facts facts = parts_->executor->facts();
  const auto plan_of = [&](uint32_t rank) { return algorithm.make(request, facts, rank); };
  return price_plans({.rank_count = rank_count(), .plan_of = plan_of}, request.block_bytes,
                     {.cores = facts.cores, .host_of = facts.host_of}, {.steps = kMaxPricedSteps});
}

void Communicator::fail_all(const Status& why) {
  parts_->peers.raise(why);
  if (device() != nullptr) process_.relaunch_thread().wake();
}

void Communicator::abort() {
  fail_all(made_or(*kAborted, [this] {
    return Status(Code::kAborted, format("rank %u called tutti_comm_abort", rank()));
  }));
}

Status Communicator::leave() noexcept {
  // The executor may run out of memory while it looks for unread messages.
  Status status = contained([this] { return parts_->executor->leave(); });
  // Ranks that shrink the communicator no longer wait for this one.
  parts_->peers.show_left();
  return status;
}

/// The handler of an exception calls this.
Status Communicator::end_thrown(bool is_one_of_many) noexcept {
  const Status thrown = caught();
  return is_one_of_many || parts_->executor->has_begun() ? end_on_all_ranks(thrown) : thrown;
}

Status Communicator::share_resource_error(const Status& failed) noexcept {
  return is_resource_error(failed) && !has_error() ? end_on_all_ranks(failed) : failed;
}

Status Communicator::end_on_all_ranks(const Status& failed) noexcept {
  const Status why = made_or(failed, [&] {
    return Status(failed.code(),
                  format("a call of rank %u has failed: %s", rank(), std::string(failed.text()).c_str()));
  });
  return contained([&] {
    if (parts_->executor->has_begun()) return parts_->executor->fail(why);
    fail_all(why);
    return why;
  });
}

Result<uint32_t> Communicator::register_memory(void* buffer, uint64_t bytes) {
  if (registrations_ != nullptr) return registrations_->add(buffer, bytes, timeout_ms_);
  // A StagedExecutor's buffers are not the caller's.
  if (is_on_device()) return 0u;
  return host_->register_buffer(static_cast<std::byte*>(buffer), bytes);
}

Status Communicator::deregister_memory(uint32_t number, bool waits) {
  if (registrations_ != nullptr) return registrations_->remove(number, waits, timeout_ms_);
  host_->deregister_buffer(number);
  return Status::ok();
}

Result<void*> Communicator::allocate(uint64_t bytes) {
  if (is_on_device()) return process_.devices_in_use()->allocate(options().device, bytes);
  return process_.heap().allocate(bytes);
}

}  // namespace tutti
