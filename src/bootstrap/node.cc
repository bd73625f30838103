#include "bootstrap/node.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "bootstrap/blobs.h"
#include "bootstrap/rendezvous.h"
#include "core/version.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

// How long a failed rank waits for the rendezvous to name the first failure.
constexpr uint64_t kJudgePatienceNs = 1'000'000'000;
// How long to wait after the deadline for the lists of lower ranks, per level of the tree.
constexpr uint64_t kLevelPatienceNs = 200'000'000;

FrameSocket::Body body_of(std::span<const std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

FrameSocket::Body body_of(std::string_view text) {
  return body_of(std::as_bytes(std::span(text.substr(0, kMaxFrameText))));
}

Status no_rendezvous(const Status& why) {
  if (why.code() != Code::kPeerLost) return why;
  return {Code::kPeerLost,
          std::string(why.text()) +
              "; it exists from the making of its unique id until the ranks have joined, once: is the id an "
              "old one, has an earlier rank failed, or has the process that made the id ended?"};
}

uint64_t height_of(uint32_t rank, uint32_t rank_count) {
  return static_cast<uint64_t>(std::bit_width(tree::subtree_count(rank, rank_count)));
}

}  // namespace

Result<std::unique_ptr<BootstrapNode>> BootstrapNode::start(EventLoop& loop, NodeOptions options,
                                                            FileDescriptor local) {
  if (options.rank_count == 0 || options.rank_count > kBootstrapRanksMax ||
      options.rank >= options.rank_count) {
    return Status(Code::kInvalidArgument,
                  format("rank %u of %u: a rank must be less than the number of ranks, which is at most %u",
                         options.rank, options.rank_count, kBootstrapRanksMax));
  }
  std::unique_ptr<BootstrapNode> node(new BootstrapNode(loop, std::move(options)));
  BootstrapNode* raw = node.get();
  raw->deadline_ = loop.call_at(raw->options_.deadline_ns, [raw] { raw->deadline_passed(); });
  if (local.is_open()) {
    raw->shape_ = BootstrapShape::kStar;
    raw->maker_ = local_peer(local.get());
    raw->join(std::move(local));
  } else {
    TUTTI_TRY(raw->enter_tree());
    raw->dial_rendezvous();
  }
  return node;
}

Status BootstrapNode::enter_tree() {
  for (const uint32_t child : tree::children_of(options_.rank, options_.rank_count)) children_[child];
  return children_.empty() ? Status::ok() : listen();
}

BootstrapNode::~BootstrapNode() {
  loop_.cancel(deadline_);
  loop_.cancel(patience_);
}

Status BootstrapNode::listen() {
  auto listener = listen_at(options_.listen);
  TUTTI_TRY(listener.status());
  own_endpoints_ = pack_endpoints(listener->endpoints);
  AcceptorOptions acceptor;
  acceptor.credentials = options_.credentials;
  acceptor.judge = [this](const Claim& claim) { return judge(claim); };
  acceptor.on_peer = [this](const Claim& claim, FileDescriptor socket) {
    link_child(claim, std::move(socket));
  };
  acceptor.on_starved = [this](const Status& why) {
    report(
        {why.code(), format("rank %u cannot take part: %s", options_.rank, std::string(why.text()).c_str())});
  };
  auto opened = Acceptor::open(loop_, std::move(listener->socket), std::move(acceptor));
  TUTTI_TRY(opened.status());
  acceptor_ = std::move(*opened);
  return Status::ok();
}

void BootstrapNode::dial_rendezvous() {
  ConnectorOptions dial;
  dial.who = "the rendezvous";
  dial.endpoints = options_.rendezvous;
  dial.name = options_.rendezvous_name;
  dial.claim = {.purpose = Purpose::kRendezvous, .from = options_.rank, .to = kBootstrapServer};
  dial.credentials = options_.credentials;
  dial.deadline_ns = options_.deadline_ns;
  dial.patient = options_.patient;
  dial.resolve = options_.resolve;
  connector_ = Connector::start(loop_, std::move(dial), [this](Result<FileDescriptor> socket) {
    const auto ended_connector = std::move(connector_);
    if (!socket) return conclude(no_rendezvous(socket.status()));
    join(std::move(*socket));
  });
}

void BootstrapNode::join(FileDescriptor socket) {
  auto stream = FrameSocket::open(loop_, std::move(socket), kBlobsBytesMax,
                                  {.on_frame = [this](Frame& frame) { from_rendezvous(std::move(frame)); },
                                   .on_closed = [this](const Status& why) { rendezvous_lost(why); }});
  if (!stream) return conclude(stream.status());
  rendezvous_ = std::move(*stream);
  ++connections_;
  send_join();
  if (!failure_) {
    rendezvous_->send({.kind = FrameKind::kFail, .code = static_cast<uint32_t>(failure_.code())},
                      body_of(failure_.text()));
  }
}

/// Over a Unix socket, checks of the user replace the proof, and the key is shown.
void BootstrapNode::send_join() {
  FrameHeader header{.kind = FrameKind::kJoin, .first = options_.rank, .count = options_.rank_count};
  if (shape_ == BootstrapShape::kTree) return rendezvous_->send(header, body_of(own_endpoints_));
  header.number = kVersionCode;
  rendezvous_->send(header, body_of(options_.credentials.key));
}

/// A rank has come over the network. What this rank said in the star is void.
void BootstrapNode::turn_to_tree() {
  if (shape_ == BootstrapShape::kTree || exchange_ > 0) return;
  shape_ = BootstrapShape::kTree;
  gone_up_ = false;
  if (const Status entered = enter_tree(); !entered) return report(entered);
  send_join();
  complete(Status(Code::kInvalidUsage, "the ranks are on several hosts"));
}

void BootstrapNode::from_rendezvous(Frame frame) {
  switch (frame.header.kind) {
    case FrameKind::kTree: return turn_to_tree();
    case FrameKind::kDown:
      if (shape_ == BootstrapShape::kStar) return take_down("the rendezvous", std::move(frame));
      break;
    case FrameKind::kParent:
      acknowledged_ = true;
      if (options_.rank == 0) return go_up();
      if (connector_ == nullptr && parent_ == nullptr) dial_parent(frame.header.first, frame.body);
      return;
    case FrameKind::kFail: return conclude(frame.failure());
    case FrameKind::kAbsent:
      if (frame.header.number == exchange_) ask_children();
      return;
    default: break;
  }
  report({Code::kInternal, format("the rendezvous sent an unexpected frame of kind %u",
                                  static_cast<unsigned>(frame.header.kind))});
}

/// The rendezvous may end after the tree is complete: before that, no rank could find this one. In a star it
/// may end after the last exchange.
void BootstrapNode::rendezvous_lost(const Status& why) {
  frames_of_closed_ += rendezvous_->sent_count();
  rendezvous_.reset();
  if (!reported_) return conclude(reported_);
  if (shape_ == BootstrapShape::kStar) {
    if (finished_) return;
    if (why.code() != Code::kPeerLost) return conclude(why);
    if (maker_ == getpid())
      return conclude({Code::kPeerLost, "the unique id is used up: it makes one communicator"});
    conclude({Code::kPeerLost,
              format("process %d, which made the unique id, has ended during set-up: its ranks are lost",
                     maker_)});
  } else if (!is_linked()) {
    conclude({Code::kPeerLost, "the process that served the rendezvous has ended during set-up"});
  }
}

bool BootstrapNode::is_linked() const {
  return (options_.rank == 0 || parent_ != nullptr) &&
         std::all_of(children_.begin(), children_.end(),
                     [](const auto& entry) { return entry.second.socket != nullptr; });
}

void BootstrapNode::dial_parent(uint32_t parent, const std::vector<std::byte>& packed) {
  Result<std::vector<Endpoint>> endpoints =
      Status(Code::kMismatch, "the rendezvous sent no packed endpoints");
  if (packed.size() == kPackedEndpointsBytes) {
    endpoints =
        unpack_endpoints(std::span<const std::byte, kPackedEndpointsBytes>(packed.data(), packed.size()));
  }
  if (!endpoints) return report(endpoints.status());
  // The parent has declined: its reason follows.
  if (endpoints->empty()) return;
  const auto own = list_interface_addresses();
  ConnectorOptions dial;
  dial.who =
      format("rank %u cannot join: rank %u, its parent in the tree of the bootstrap,", options_.rank, parent);
  dial.endpoints = own ? with_scopes(std::move(*endpoints), *own) : std::move(*endpoints);
  dial.claim = {.purpose = Purpose::kTree, .from = options_.rank, .to = parent};
  dial.credentials = options_.credentials;
  dial.deadline_ns = options_.deadline_ns;
  connector_ = Connector::start(loop_, std::move(dial), [this](Result<FileDescriptor> socket) {
    const auto ended_connector = std::move(connector_);
    if (!socket) return report(socket.status());
    link_parent(std::move(*socket));
  });
}

void BootstrapNode::link_parent(FileDescriptor socket) {
  auto stream = FrameSocket::open(
      loop_, std::move(socket), kBlobsBytesMax,
      {.on_frame = [this](Frame& frame) { from_parent(std::move(frame)); },
       .on_closed = [this](const Status&) { neighbour_lost(tree::parent_of(options_.rank)); }});
  if (!stream) return report(stream.status());
  parent_ = std::move(*stream);
  ++connections_;
  if (!failure_) {
    parent_->send({.kind = FrameKind::kFail, .code = static_cast<uint32_t>(failure_.code())},
                  body_of(failure_.text()));
  }
  go_up();
}

void BootstrapNode::from_parent(Frame frame) {
  if (frame.header.kind == FrameKind::kFail) return conclude(frame.failure());
  take_down(format("rank %u", tree::parent_of(options_.rank)).c_str(), std::move(frame));
}

void BootstrapNode::take_down(const char* sender, Frame frame) {
  if (frame.header.kind != FrameKind::kDown || frame.header.number != exchange_ || !gone_up_ ||
      !holds_blobs(frame.body, options_.rank_count)) {
    return report({Code::kInternal,
                   format("%s sent rank %u an unexpected frame of kind %u and %zu bytes", sender,
                          options_.rank, static_cast<unsigned>(frame.header.kind), frame.body.size())});
  }
  spread(std::make_shared<const std::vector<std::byte>>(std::move(frame.body)));
}

HandshakeResult BootstrapNode::judge(const Claim& claim) const {
  if (claim.to != options_.rank) return HandshakeResult::kWrongRank;
  const auto found = children_.find(claim.from);
  const bool awaited =
      claim.purpose == Purpose::kTree && found != children_.end() && found->second.socket == nullptr;
  return awaited ? HandshakeResult::kAccepted : HandshakeResult::kUnexpected;
}

void BootstrapNode::link_child(const Claim& claim, FileDescriptor socket) {
  const uint32_t rank = claim.from;
  auto stream =
      FrameSocket::open(loop_, std::move(socket), kBlobsBytesMax,
                        {.on_frame = [this, rank](Frame& frame) { from_child(rank, std::move(frame)); },
                         .on_closed = [this, rank](const Status&) { neighbour_lost(rank); }});
  if (!stream) return report(stream.status());
  ++connections_;
  Child& child = children_.at(rank);
  child.socket = std::move(*stream);
  if (!failure_) {
    child.socket->send({.kind = FrameKind::kFail, .code = static_cast<uint32_t>(failure_.code())},
                       body_of(failure_.text()));
  }
}

void BootstrapNode::from_child(uint32_t rank, Frame frame) {
  Child& child = children_.at(rank);
  switch (frame.header.kind) {
    case FrameKind::kFail: return conclude(frame.failure());
    case FrameKind::kUp: return take_up(rank, child, std::move(frame));
    case FrameKind::kMissing: child.missing = frame.text(); return ask_children();
    default:
      return report({Code::kInternal, format("rank %u sent rank %u an unexpected frame of kind %u", rank,
                                             options_.rank, static_cast<unsigned>(frame.header.kind))});
  }
}

void BootstrapNode::take_up(uint32_t rank, Child& child, Frame frame) {
  const uint32_t count = tree::subtree_count(rank, options_.rank_count);
  if (frame.header.number != exchange_ || child.reported || frame.header.first != rank ||
      frame.header.count != count || !holds_blobs(frame.body, count)) {
    return report({Code::kInternal,
                   format("rank %u sent rank %u the blobs of %u ranks for exchange %u, expected are those of "
                          "%u ranks for exchange %u",
                          rank, options_.rank, frame.header.count, frame.header.number, count, exchange_)});
  }
  child.blobs = std::move(frame.body);
  child.reported = true;
  go_up();
}

void BootstrapNode::go_up() {
  if (!on_table_ || gone_up_ || !failure_ || !reported_) return;
  const bool is_star = shape_ == BootstrapShape::kStar;
  FrameSocket* up = is_star ? rendezvous_.get() : parent_.get();
  const bool is_root = !is_star && options_.rank == 0;
  if (is_root ? !acknowledged_ : up == nullptr) return;
  size_t bytes = blob_.size();
  for (const auto& [rank, child] : children_) {
    if (!child.reported) return;
    bytes += child.blobs.size();
  }
  if (bytes > kBlobsBytesMax) return report(too_many_bytes(options_.rank, bytes));
  std::vector<std::byte> blobs = std::move(blob_);
  blobs.reserve(bytes);
  for (auto& [rank, child] : children_) {
    blobs.insert(blobs.end(), child.blobs.begin(), child.blobs.end());
    child.blobs = {};
  }
  gone_up_ = true;
  if (is_root) blobs = compact_blobs(blobs, options_.rank_count);
  auto body = std::make_shared<const std::vector<std::byte>>(std::move(blobs));
  if (is_root) return spread(std::move(body));
  up->send({.kind = FrameKind::kUp,
            .first = options_.rank,
            .count = is_star ? 1 : tree::subtree_count(options_.rank, options_.rank_count),
            .number = exchange_,
            .code = last_ ? 1u : 0u},
           std::move(body));
  // After the deadline this rank then only waits for the result.
  if (patience_.number != 0) ask_children();
}

void BootstrapNode::spread(Table table) {
  for (auto& [rank, child] : children_) {
    child.socket->send({.kind = FrameKind::kDown, .count = options_.rank_count, .number = exchange_}, table);
    child.reported = false;
    child.missing.clear();
  }
  ++exchange_;
  gone_up_ = false;
  finished_ = last_;
  loop_.cancel(patience_);
  // The tree is complete: no rank needs the rendezvous, and no other rank may come.
  if (shape_ == BootstrapShape::kTree) leave_rendezvous();
  acceptor_.reset();
  complete(std::move(table));
}

void BootstrapNode::leave_rendezvous() {
  if (rendezvous_ == nullptr) return;
  rendezvous_->send({.kind = FrameKind::kLeave});
  frames_of_closed_ += rendezvous_->sent_count();
  // The kernel takes so small a frame at once, unless the rendezvous is broken.
  rendezvous_.reset();
}

void BootstrapNode::neighbour_lost(uint32_t rank) {
  if (finished_) return;
  report({Code::kPeerLost, format("rank %u ended while the communicator was set up", rank)});
}

void BootstrapNode::all_gather(std::span<const std::byte> blob, bool last, OnTable on_table) {
  if (!failure_) return on_table(failure_);
  on_table_ = std::move(on_table);
  if (blob.size() > kBlobsBytesMax) return report(too_many_bytes(options_.rank, blob.size()));
  blob_.clear();
  append_blob(blob_, blob);
  last_ = last;
  go_up();
  if (overdue_) deadline_passed();
}

void BootstrapNode::deadline_passed() {
  overdue_ = true;
  if (!failure_ || !on_table_) return;
  if (rendezvous_ != nullptr) {
    // The rendezvous knows which ranks have not joined.
    rendezvous_->send({.kind = FrameKind::kAbsent, .number = exchange_});
    patience_ = loop_.call_at(loop_.now() + kJudgePatienceNs, [this] { rendezvous_silent(); });
    return;
  }
  if (connector_ == nullptr) ask_children();
}

/// Who is missing, only the rendezvous knows: no rank is blamed.
void BootstrapNode::rendezvous_silent() {
  patience_ = {};
  const std::string maker = maker_ == 0 ? "the process that made the unique id does"
                                        : format("process %d, which made the unique id, does", maker_);
  conclude({Code::kTimeout,
            format("set-up was not finished before its deadline: %s not answer rank %u: it is stopped, or "
                   "its host cannot be reached",
                   maker.c_str(), options_.rank)});
}

/// All ranks have joined, but some have not come to this exchange. The lists of missing ranks go up the tree.
void BootstrapNode::ask_children() {
  if (!failure_ || !on_table_) return;
  loop_.cancel(patience_);
  if (shape_ == BootstrapShape::kStar) {
    return report(
        {Code::kTimeout, "set-up was not finished before its deadline, though all ranks have come"});
  }
  // A rank whose part is done waits for rank 0's result, which waits for the deepest list.
  const uint64_t levels =
      gone_up_ ? 2 + height_of(0, options_.rank_count) : height_of(options_.rank, options_.rank_count) - 1;
  const bool all_heard = !gone_up_ && std::all_of(children_.begin(), children_.end(), [](const auto& entry) {
    return entry.second.reported || !entry.second.missing.empty();
  });
  patience_ = loop_.call_at(loop_.now() + (all_heard ? 0 : levels * kLevelPatienceNs),
                            [this] { conclude_missing(); });
}

void BootstrapNode::conclude_missing() {
  patience_ = {};
  if (!failure_ || !on_table_) return;
  std::string missing;
  for (const auto& [rank, child] : children_) {
    if (child.reported) continue;
    const std::string text = child.missing.empty() ? std::to_string(rank) : child.missing;
    add_to_list(missing, text);
  }
  if (options_.rank != 0 && !gone_up_ && parent_ != nullptr) {
    parent_->send({.kind = FrameKind::kMissing, .number = exchange_}, body_of(missing));
    gone_up_ = true;  // from here on, this rank only waits for the result
    return ask_children();
  }
  if (options_.rank != 0) {
    return report(
        {Code::kTimeout, format("set-up was not finished before its deadline: rank %u has not passed on "
                                "what the other ranks say",
                                tree::parent_of(options_.rank))});
  }
  report({Code::kTimeout,
          format("set-up was not finished before its deadline: all %u ranks have joined, but then "
                 "these have not come, or not answered in time: %s",
                 options_.rank_count, missing.c_str())});
}

void BootstrapNode::report(const Status& why) {
  if (!failure_ || !reported_) return;
  if (rendezvous_ == nullptr) return conclude(why);
  reported_ = why;
  rendezvous_->send({.kind = FrameKind::kFail, .code = static_cast<uint32_t>(why.code())},
                    body_of(why.text()));
  loop_.cancel(patience_);
  patience_ = loop_.call_at(loop_.now() + kJudgePatienceNs, [this] { conclude(reported_); });
}

void BootstrapNode::conclude(const Status& why) {
  if (!failure_) return;
  failure_ = why;
  loop_.cancel(patience_);
  const FrameHeader header{.kind = FrameKind::kFail, .code = static_cast<uint32_t>(why.code())};
  const FrameSocket::Body text = body_of(why.text());
  for (auto& [rank, child] : children_) {
    if (child.socket != nullptr) child.socket->send(header, text);
  }
  if (parent_ != nullptr) parent_->send(header, text);
  if (rendezvous_ != nullptr && reported_) rendezvous_->send(header, text);
  complete(why);
}

void BootstrapNode::complete(Result<Table> result) {
  const auto on_table = std::exchange(on_table_, nullptr);
  if (on_table) on_table(std::move(result));
}

void BootstrapNode::close() {
  acceptor_.reset();
  connector_.reset();
  rendezvous_.reset();
  parent_.reset();
  for (auto& [rank, child] : children_) child.socket.reset();
}

bool BootstrapNode::is_drained() const {
  const auto drained = [](const std::unique_ptr<FrameSocket>& socket) {
    return socket == nullptr || socket->is_drained();
  };
  return drained(rendezvous_) && drained(parent_) &&
         std::all_of(children_.begin(), children_.end(),
                     [&](const auto& entry) { return drained(entry.second.socket); });
}

NodeCounts BootstrapNode::counts() const {
  NodeCounts counts{connections_, frames_of_closed_};
  for (const auto* socket : {&rendezvous_, &parent_}) {
    if (*socket != nullptr) counts.frames_sent += (*socket)->sent_count();
  }
  for (const auto& [rank, child] : children_) {
    if (child.socket != nullptr) counts.frames_sent += child.socket->sent_count();
  }
  return counts;
}

}  // namespace tutti
