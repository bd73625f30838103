#include "bootstrap/rendezvous.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/blobs.h"
#include "core/version.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

constexpr uint64_t kPauseNs = 10'000'000;
// How long a lack of descriptors may last, since the application may close some.
constexpr uint64_t kStarvedNs = 1'000'000'000;

/// What `action` throws, as a failure.
template <class Action>
Status caught_in(const Action& action) noexcept {
  return contained([&]() -> Status {
    action();
    return Status::ok();
  });
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> Rendezvous::open(EventLoop& loop, RendezvousOptions options) {
  std::unique_ptr<Rendezvous> rendezvous(new Rendezvous(loop, options));
  if (options.local.is_open()) TUTTI_TRY(rendezvous->listen_locally(std::move(options.local)));
  if (options.listener.socket.is_open()) TUTTI_TRY(rendezvous->listen_to_network(options));
  return rendezvous;
}

Rendezvous::~Rendezvous() {
  loop_.cancel(memory_);
  loop_.cancel(resume_);
  if (local_.is_open()) loop_.forget(local_.get());
}

/// Runs a step that may end this object. A step that throws has changed a part of it only, so the bootstrap
/// fails. If memory for that is short too, this process stops serving, which the ranks notice.
template <class Step>
void Rendezvous::run(const Step& step) noexcept {
  const Status done = caught_in(step);
  if (done) return;
  const Status told = caught_in([&] { failure_ ? starve(done) : tell_all(); });
  if (!told) stop_serving();
}

Status Rendezvous::listen_locally(FileDescriptor listener) {
  TUTTI_TRY(loop_.watch(listener.get(), EPOLLIN, [this](uint32_t) { run([this] { accept_local(); }); }));
  local_ = std::move(listener);
  local_guard_ = ForkGuard(local_.get());
  shape_ = BootstrapShape::kStar;
  return Status::ok();
}

Status Rendezvous::listen_to_network(RendezvousOptions& options) {
  AcceptorOptions acceptor;
  acceptor.credentials = options.credentials;
  acceptor.judge = [](const Claim& claim) {
    if (claim.to != kBootstrapServer) return HandshakeResult::kWrongRank;
    return claim.purpose == Purpose::kRendezvous ? HandshakeResult::kAccepted : HandshakeResult::kUnexpected;
  };
  acceptor.on_peer = [this](const Claim& claim, FileDescriptor socket) {
    run([&] { admit(claim.from, false, std::move(socket)); });
  };
  acceptor.on_starved = [this](const Status& why) { run([&] { starve(why); }); };
  acceptor.on_stranger = std::move(options.on_stranger);
  acceptor.pending_max = options.pending_max;
  acceptor.proof_timeout_ms = options.proof_timeout_ms;
  auto opened = Acceptor::open(loop_, std::move(options.listener.socket), std::move(acceptor));
  TUTTI_TRY(opened.status());
  acceptor_ = std::move(*opened);
  return Status::ok();
}

void Rendezvous::accept_local() {
  for (;;) {
    FileDescriptor socket = local_accept(local_);
    if (socket.is_open()) {
      starved_ns_ = 0;
      constexpr uint32_t kNotKnownYet = UINT32_MAX;
      admit(kNotKnownYet, true, std::move(socket));
      continue;
    }
    const int error_number = errno;
    if (error_number == EAGAIN) return;
    // Without descriptors the listener would stay ready forever.
    const uint64_t now = loop_.now();
    if (starved_ns_ == 0) starved_ns_ = now;
    loop_.cancel(resume_);
    resume_ = loop_.call_at(now + kPauseNs, [this] { loop_.change(local_.get(), EPOLLIN); });
    loop_.change(local_.get(), 0);
    if (now - starved_ns_ >= kStarvedNs)
      starve(system_error("accepting connections of other ranks", error_number));
    return;
  }
}

void Rendezvous::starve(const Status& why) {
  fail(why.code(), format("process %d, which made the unique id, cannot serve it: %s", getpid(),
                          std::string(why.text()).c_str()));
}

/// Blobs come only over the Unix socket, from the same user.
void Rendezvous::admit(uint32_t rank, bool is_local, FileDescriptor socket) {
  const uint64_t number = ++arrivals_;
  auto stream = FrameSocket::open(
      loop_, std::move(socket), is_local ? kBlobsBytesMax : 0,
      {.on_frame = [this, number](Frame& frame) { run([&] { handle(number, std::move(frame)); }); },
       .on_closed = [this, number](const Status&) { run([&] { lose(number); }); }});
  if (!stream) return;
  visitors_[number] = {.socket = std::move(*stream), .rank = rank, .is_local = is_local};
}

void Rendezvous::handle(uint64_t number, Frame frame) {
  Visitor& visitor = visitors_.at(number);
  if (visitor.is_refused) return;
  const FrameKind kind = frame.header.kind;
  if (!visitor.joined) return kind == FrameKind::kJoin ? join(number, frame) : lose(number);
  if (kind == FrameKind::kLeave) {
    visitor.left = true;
    return lose(number);
  }
  // Every rank that has joined has been told the failure.
  if (!failure_) return;
  switch (kind) {
    case FrameKind::kJoin: return join(visitor, frame);
    case FrameKind::kUp: return gather(visitor, std::move(frame));
    case FrameKind::kAbsent: return answer_absent(visitor, frame.header.number);
    case FrameKind::kFail: {
      const Status failure = frame.failure();
      return fail(failure.code(), std::string(failure.text()));
    }
    default: return lose(number);
  }
}

void Rendezvous::join(uint64_t number, const Frame& frame) {
  Visitor& visitor = visitors_.at(number);
  const uint32_t rank_count = frame.header.count;
  if (visitor.is_local) {
    // The user has been checked. The key shows that the rank means this bootstrap.
    if (!equal_secrets(frame.body, credentials_.key)) {
      visitor.is_refused = true;
      tell(visitor, Code::kInvalidArgument,
           "argument id has another key than the unique id that was made: it was damaged in transit");
      damaged_.insert(frame.header.first);
      return give_up_damaged();
    }
    visitor.rank = frame.header.first;
  } else if (shape_ == BootstrapShape::kStar && exchange_ > 0) {
    return lose(number);  // all ranks have joined without it
  }
  visitor.joined = true;
  if (rank_count > 0) joins_.expect(rank_count);
  if (!failure_) return tell(visitor, failure_.code(), failure_.text());
  // A wrong set-up fails all ranks: none should wait for the deadline.
  if (const Status why = objection(visitor, frame); !why) return fail(why.code(), std::string(why.text()));
  joined_[visitor.rank] = true;
  visitor_of_rank_[visitor.rank] = number;
  damaged_.erase(visitor.rank);
  give_up_damaged();
  if (!failure_) return;
  if (!visitor.is_local) turn_to_tree();
  if (shape_ == BootstrapShape::kStar) return;
  if (visitor.is_local) return send(visitor, {.kind = FrameKind::kTree});
  join(visitor, frame);
}

/// Over the Unix socket only processes of this user come, which could end the ranks anyway. So one of them
/// may end the bootstrap without the key. Over the network nobody may: a stranger could end the job.
void Rendezvous::give_up_damaged() {
  if (damaged_.empty() || *damaged_.begin() >= rank_count_) return;
  const uint32_t rank = *damaged_.begin();
  joins_.gone(rank);
  fail(Code::kInvalidArgument,
       format("rank %u has another key than the unique id that was made: its id was damaged in transit",
              rank));
}

Status Rendezvous::objection(Visitor& visitor, const Frame& frame) {
  const uint32_t rank = frame.header.first;
  const uint32_t rank_count = frame.header.count;
  if (visitor.is_local && frame.header.number != kVersionCode) {
    return {Code::kVersionMismatch,
            format("rank %u runs tutti version %u, the maker of the unique id version %u", rank,
                   frame.header.number, kVersionCode)};
  }
  if (rank_count == 0 || rank_count > kBootstrapRanksMax || rank >= rank_count || rank != visitor.rank) {
    return {Code::kInvalidArgument,
            format("rank %u of %u: a rank must be less than the number of ranks, which is at most %u",
                   visitor.rank, rank_count, kBootstrapRanksMax)};
  }
  if (rank_count_ == 0) {
    rank_count_ = rank_count;
    joined_.resize(rank_count);
    endpoints_.resize(rank_count);
  }
  if (rank_count != rank_count_) {
    return {Code::kInvalidArgument,
            format("rank %u says that there are %u ranks, others say %u", rank, rank_count, rank_count_)};
  }
  if (joined_[rank]) {
    visitor.is_second = true;
    return {Code::kInvalidArgument, format("rank %u has joined twice", rank)};
  }
  return Status::ok();
}

/// The ranks of this host must use the network too.
void Rendezvous::turn_to_tree() {
  if (std::exchange(shape_, BootstrapShape::kTree) == BootstrapShape::kTree) return;
  for (const auto& [rank, number] : visitor_of_rank_) {
    Visitor& visitor = visitors_.at(number);
    visitor.blob = {};
    visitor.has_blob = false;
    visitor.left = false;
    if (visitor.is_local) send(visitor, {.kind = FrameKind::kTree});
  }
}

void Rendezvous::join(Visitor& visitor, const Frame& frame) {
  FrameSocket::Body& endpoints = endpoints_[visitor.rank];
  if (shape_ != BootstrapShape::kTree || endpoints != nullptr || frame.body.size() != kPackedEndpointsBytes) {
    return fail(Code::kInternal, format("rank %u sent %zu bytes as the addresses where it listens",
                                        visitor.rank, frame.body.size()));
  }
  endpoints = std::make_shared<const std::vector<std::byte>>(frame.body);
  introduce(visitor.rank);
  for (const uint32_t child : tree::children_of(visitor.rank, rank_count_)) introduce(child);
}

/// Tells a rank where its parent listens, once both have come.
void Rendezvous::introduce(uint32_t rank) {
  const auto found = visitor_of_rank_.find(rank);
  if (found == visitor_of_rank_.end() || endpoints_[rank] == nullptr) return;
  Visitor& visitor = visitors_.at(found->second);
  if (rank == 0) return send(visitor, {.kind = FrameKind::kParent});
  const uint32_t parent = tree::parent_of(rank);
  if (endpoints_[parent] == nullptr) return;
  send(visitor, {.kind = FrameKind::kParent, .first = parent}, endpoints_[parent]);
}

void Rendezvous::gather(Visitor& visitor, Frame frame) {
  // The rank does not know yet that the shape is a tree.
  if (shape_ == BootstrapShape::kTree) return;
  if (visitor.has_blob || frame.header.number != exchange_ || !holds_blobs(frame.body, 1)) {
    return fail(Code::kInternal,
                format("rank %u sent %zu bytes for exchange %u, but the current exchange is %u", visitor.rank,
                       frame.body.size(), frame.header.number, exchange_));
  }
  blob_bytes_ += frame.body.size();
  if (blob_bytes_ > kBlobsBytesMax) {
    const Status why = too_many_bytes(visitor.rank, blob_bytes_);
    return fail(why.code(), std::string(why.text()));
  }
  visitor.blob = std::move(frame.body);
  visitor.has_blob = true;
  if (frame.header.code != 0) visitor.left = true;
  if (++blob_count_ == rank_count_) spread();
}

void Rendezvous::spread() {
  std::vector<std::byte> table;
  table.reserve(blob_bytes_);
  for (const auto& [rank, number] : visitor_of_rank_) {
    Visitor& visitor = visitors_.at(number);
    table.insert(table.end(), visitor.blob.begin(), visitor.blob.end());
    visitor.has_blob = false;
    visitor.blob = {};
  }
  const auto body = std::make_shared<const std::vector<std::byte>>(compact_blobs(table, rank_count_));
  for (const auto& [rank, number] : visitor_of_rank_) {
    send(visitors_.at(number), {.kind = FrameKind::kDown, .count = rank_count_, .number = exchange_}, body);
  }
  ++exchange_;
  blob_count_ = 0;
  blob_bytes_ = 0;
  acceptor_.reset();
}

void Rendezvous::answer_absent(Visitor& visitor, uint32_t exchange) {
  const std::string late = "set-up was not finished before its deadline: ";
  const bool is_star = shape_ == BootstrapShape::kStar;
  const std::string missing =
      list_ranks([&](uint32_t rank) { return is_star ? !joined_[rank] : endpoints_[rank] == nullptr; });
  if (!missing.empty()) {
    std::string text = late + format("of %u ranks, these have not joined: %s", rank_count_, missing.c_str());
    if (acceptor_ != nullptr && !acceptor_->last_without_key().empty()) {
      text += "; a connection from " + acceptor_->last_without_key() +
              " did not know the key: does a rank there have another unique id or TUTTI_KEY?";
    }
    return fail(Code::kTimeout, text);
  }
  const std::string silent = list_ranks([&](uint32_t rank) {
    const auto found = visitor_of_rank_.find(rank);
    return is_star && (found == visitor_of_rank_.end() || !visitors_.at(found->second).has_blob);
  });
  if (silent.empty() || !visitor.has_blob) {
    return send(visitor, {.kind = FrameKind::kAbsent, .number = exchange});
  }
  fail(Code::kTimeout, late + format("all %u ranks have joined, but then these have not come: %s",
                                     rank_count_, silent.c_str()));
}

std::string Rendezvous::list_ranks(const std::function<bool(uint32_t)>& is_listed) const {
  constexpr size_t kMostText = 1000;
  std::string text;
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (!is_listed(rank)) continue;
    uint32_t last = rank;
    while (last + 1 < rank_count_ && is_listed(last + 1)) ++last;
    if (text.size() > kMostText) return text + ", ...";
    add_to_list(text, std::to_string(rank));
    if (last > rank) text += (last == rank + 1 ? ", " : "-") + std::to_string(last);
    rank = last;
  }
  return text;
}

void Rendezvous::lose(uint64_t number) {
  const auto found = visitors_.find(number);
  const Visitor visitor = std::move(found->second);
  visitors_.erase(found);
  if (!visitor.joined) return;
  if (const auto own = visitor_of_rank_.find(visitor.rank);
      own != visitor_of_rank_.end() && own->second == number) {
    visitor_of_rank_.erase(own);
  }
  // A rank that has sent its last blob may leave after all blobs were sent out.
  if (!visitor.left || visitor.has_blob) {
    fail(Code::kPeerLost, format("rank %u ended while the communicator was set up", visitor.rank));
  }
  visitor.is_second ? joins_.gone_under_another_name() : joins_.gone(visitor.rank);
  settle();
}

void Rendezvous::settle() {
  const bool any_left =
      std::any_of(visitors_.begin(), visitors_.end(), [](const auto& entry) { return entry.second.joined; });
  // Ranks leave after all have joined. Otherwise the bootstrap has failed.
  if (any_left || (!failure_ && !joins_.is_complete())) return;
  end();
}

void Rendezvous::give_up(uint32_t rank_count, uint32_t rank, const Status& why) {
  joins_.expect(rank_count);
  run([&] {
    joins_.gone(rank);
    fail(why.code(), std::string(why.text()));
    settle();
  });
}

void Rendezvous::end() {
  if (!failure_) static_cast<void>(caught_in([this] { tell_unread(); }));
  stop_serving();
}

/// Ranks that have connected but were not read yet learn why nobody serves them.
void Rendezvous::tell_unread() {
  if (local_.is_open()) accept_local();
  for (auto& [number, visitor] : visitors_) {
    if (!visitor.joined && !visitor.is_refused) tell(visitor, failure_.code(), failure_.text());
  }
}

void Rendezvous::stop_serving() {
  const auto on_end = std::exchange(on_end_, nullptr);
  if (on_end) on_end();
}

void Rendezvous::fail(Code code, const std::string& text) {
  if (!failure_) return;
  Status failure(code, text);
  memory_ = loop_.call_at(loop_.now() + remember_ms_ * 1'000'000, [this] { end(); });
  failure_ = std::move(failure);
  if (on_fail_) on_fail_(failure_);
  tell_all();
}

/// Every rank that has joined is told the failure.
void Rendezvous::tell_all() {
  for (auto& [number, visitor] : visitors_) {
    if (visitor.joined) tell(visitor, failure_.code(), failure_.text());
  }
}

void Rendezvous::tell(Visitor& visitor, Code code, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text)).first(std::min(text.size(), kMaxFrameText));
  send(visitor, {.kind = FrameKind::kFail, .code = static_cast<uint32_t>(code)},
       std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
}

void Rendezvous::send(Visitor& visitor, FrameHeader header, FrameSocket::Body body) {
  ++sent_count_;
  visitor.socket->send(header, std::move(body));
}

}  // namespace tutti
