#include "bootstrap/rendezvous.h"

#include <algorithm>

#include "bootstrap/tree.h"

namespace tutti {

Result<std::unique_ptr<Rendezvous>> Rendezvous::open(EventLoop& loop, RendezvousOptions options) {
  std::unique_ptr<Rendezvous> point(new Rendezvous(loop, options));
  Rendezvous* raw = point.get();
  AcceptorOptions acceptor;
  acceptor.credentials = options.credentials;
  acceptor.judge = [](const Claim& claim) {
    if (claim.to != kBootstrapServer) return HandshakeResult::kWrongRank;
    return claim.purpose == Purpose::kRendezvous ? HandshakeResult::kAccepted : HandshakeResult::kUnexpected;
  };
  acceptor.on_peer = [raw](const Claim& claim, FileDescriptor socket) {
    raw->admit(claim, std::move(socket));
  };
  acceptor.on_stranger = std::move(options.on_stranger);
  acceptor.pending_max = options.pending_max;
  acceptor.proof_timeout_ms = options.proof_timeout_ms;
  auto opened = Acceptor::open(loop, std::move(options.listener.socket), std::move(acceptor));
  TUTTI_TRY(opened.status());
  point->acceptor_ = std::move(*opened);
  return point;
}

Rendezvous::~Rendezvous() {
  loop_.cancel(memory_);
}

void Rendezvous::admit(const Claim& claim, FileDescriptor socket) {
  const uint64_t number = ++arrivals_;
  auto stream = FrameSocket::open(loop_, std::move(socket), 0,
                                  {.on_frame = [this, number](const Frame& frame) { handle(number, frame); },
                                   .on_closed = [this, number](const Status&) { lose(number); }});
  if (!stream) return;
  visitors_[number] = {std::move(*stream), claim.from};
}

void Rendezvous::handle(uint64_t number, const Frame& frame) {
  Visitor& visitor = visitors_.at(number);
  if (!visitor.joined) {
    if (frame.header.kind == FrameKind::kJoin) return join(visitor, frame);
    return lose(number);
  }
  switch (frame.header.kind) {
    case FrameKind::kLeave: visitor.left = true; return lose(number);
    case FrameKind::kAbsent: return answer_absent(visitor);
    case FrameKind::kFail: {
      const Status failure = frame.failure();
      return fail(failure.code(), std::string(failure.text()));
    }
    default: return lose(number);
  }
}

void Rendezvous::join(Visitor& visitor, const Frame& frame) {
  const uint32_t rank = frame.header.first;
  const uint32_t rank_count = frame.header.count;
  visitor.joined = true;
  if (const auto on_begin = std::exchange(on_begin_, nullptr)) on_begin();
  if (rank_count > 0) joins_->expect(rank_count);
  if (!failure_) return tell_failure(visitor);
  // A wrong set-up is everybody's failure: nobody should wait for the deadline.
  const auto refuse = [&](const std::string& text) { fail(Code::kInvalidArgument, text); };
  if (rank_count == 0 || rank_count > kBootstrapRanksMax || rank >= rank_count || rank != visitor.rank ||
      frame.body.size() != kPackedEndpointsBytes) {
    return refuse(format("rank %u of %u: a rank must be less than the number of ranks, and that at most %u",
                         visitor.rank, rank_count, kBootstrapRanksMax));
  }
  if (rank_count_ == 0) {
    rank_count_ = rank_count;
    endpoints_.resize(rank_count);
  }
  if (rank_count != rank_count_) {
    return refuse(
        format("rank %u says that there are %u ranks, others say %u", rank, rank_count, rank_count_));
  }
  if (endpoints_[rank] != nullptr) {
    visitor.is_second = true;
    return refuse(format("rank %u has joined twice", rank));
  }
  endpoints_[rank] = std::make_shared<const std::vector<std::byte>>(frame.body);
  const auto own = std::find_if(visitors_.begin(), visitors_.end(),
                                [&](const auto& entry) { return &entry.second == &visitor; });
  visitor_of_rank_[rank] = own->first;
  introduce(rank);
  for (const uint32_t child : tree::children_of(rank, rank_count_)) introduce(child);
}

/// Tells a rank where its parent listens, once both have come.
void Rendezvous::introduce(uint32_t rank) {
  const auto found = visitor_of_rank_.find(rank);
  if (found == visitor_of_rank_.end()) return;
  Visitor& visitor = visitors_.at(found->second);
  if (rank == 0) return send(visitor, {.kind = FrameKind::kParent});
  const uint32_t parent = tree::parent_of(rank);
  if (endpoints_[parent] == nullptr) return;
  send(visitor, {.kind = FrameKind::kParent, .first = parent}, endpoints_[parent]);
}

void Rendezvous::answer_absent(Visitor& visitor) {
  const std::string who = absent();
  if (who.empty()) return send(visitor, {.kind = FrameKind::kAbsent});
  fail(Code::kTimeout,
       format("set-up was not finished before its deadline: of %u ranks, these have not joined: %s",
              rank_count_, who.c_str()));
}

std::string Rendezvous::absent() const {
  constexpr size_t kMostText = 1000;
  std::string text;
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (endpoints_[rank] != nullptr) continue;
    uint32_t last = rank;
    while (last + 1 < rank_count_ && endpoints_[last + 1] == nullptr) ++last;
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
  if (!visitor.left) {
    fail(Code::kPeerLost, format("rank %u ended while the communicator was set up", visitor.rank));
  }
  visitor.is_second ? joins_->gone_under_another_name() : joins_->gone(visitor.rank);
  settle();
}

void Rendezvous::settle() {
  const bool any_left =
      std::any_of(visitors_.begin(), visitors_.end(), [](const auto& entry) { return entry.second.joined; });
  // Ranks leave when all have met; before that the last one to leave leaves in failure.
  if (any_left || (!failure_ && !joins_->is_complete())) return;
  end();
}

void Rendezvous::end() {
  const auto on_end = std::exchange(on_end_, nullptr);
  if (on_end) on_end();
}

void Rendezvous::fail(Code code, const std::string& text) {
  if (!failure_) return;
  failure_ = Status(code, text);
  memory_ = loop_.call_at(loop_.now() + remember_ms_ * 1'000'000, [this] { end(); });
  if (on_fail_) on_fail_(failure_);
  for (auto& [number, visitor] : visitors_) {
    if (visitor.joined) tell_failure(visitor);
  }
}

void Rendezvous::tell_failure(Visitor& visitor) {
  const auto text =
      std::as_bytes(std::span(failure_.text())).first(std::min(failure_.text().size(), kMaxFrameText));
  send(visitor, {.kind = FrameKind::kFail, .code = static_cast<uint32_t>(failure_.code())},
       std::make_shared<const std::vector<std::byte>>(text.begin(), text.end()));
}

void Rendezvous::send(Visitor& visitor, FrameHeader header, FrameSocket::Body body) {
  ++sent_count_;
  visitor.socket->send(header, std::move(body));
}

}  // namespace tutti
