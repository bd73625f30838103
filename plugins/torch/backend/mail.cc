#include "mail.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "joining.h"

namespace tutti_torch {
namespace {

// A header is received for as long as somebody may still send. The largest deadline that tutti takes.
constexpr uint64_t kYearMs = 365ULL * 24 * 3600 * 1000;
constexpr std::chrono::milliseconds kLookAgain{1};
// The clerk looks into the store for senders that have not come yet.
constexpr std::chrono::milliseconds kLookIntoStore{10};
constexpr int kSender = 0;
constexpr int kReceiver = 1;

std::exception_ptr error_from(const std::string& text) {
  return std::make_exception_ptr(c10::DistBackendError({"tutti", "tutti.torch", 0}, "tutti: " + text));
}

}  // namespace

/// What a notification of a pair's stream is about.
struct Mail::Pending {
  enum class What { kSent, kHeader, kPayload };
  Mail* mail;
  What what;
  int peer;
  Header header{};                ///< kSent: the memory that is sent
  c10::intrusive_ptr<Work> work;  ///< null: a message that nobody waits for yet
  Arrived arrived = {};
  size_t wanted_bytes = 0;
};

Mail::Mail(int rank, int size, const c10::intrusive_ptr<c10d::Store>& store)
    : rank_(rank), size_(size), store_(store->clone()), out_(size), in_(size) {}

Mail::~Mail() {
  stop("the process group was destroyed");
}

std::string Mail::key(int from, int to) const {
  return c10::str("pair/", from, "/", to);
}

void Mail::send(const at::Tensor& tensor, int peer, int tag, const c10::intrusive_ptr<Work>& work) {
  const Memory memory = movable(tensor);
  TORCH_CHECK(peer >= 0 && peer < size_ && peer != rank_, "tutti: rank ", rank_, " of ", size_,
              " cannot send to rank ", peer);
  const std::scoped_lock lock(mutex_);
  TORCH_CHECK(stopped_.empty(), "tutti: ", stopped_);
  Line& line = out_[peer];
  if (line.state == State::kFailed) {
    work->complete(error_from(line.failure));
    return;
  }
  Outgoing message{.work = work,
                   .memory = memory,
                   .header = {.tag = static_cast<uint64_t>(tag), .bytes = memory.bytes()},
                   .deadline = Clock::now() + work->getTimeout()};
  if (line.state == State::kReady) {
    transmit(line, peer, std::move(message));
    return;
  }
  line.waiting.push_back(std::move(message));
  if (line.state == State::kUnused) line.state = State::kWanted;
  start_clerk();
}

void Mail::receive(const at::Tensor& tensor, int source, int tag, const c10::intrusive_ptr<Work>& work) {
  const Memory memory = movable(tensor);
  TORCH_CHECK(source == kAny || (source >= 0 && source < size_ && source != rank_), "tutti: rank ", rank_,
              " of ", size_, " cannot receive from rank ", source);
  const std::scoped_lock lock(mutex_);
  TORCH_CHECK(stopped_.empty(), "tutti: ", stopped_);
  const Posted posted{.work = work,
                      .memory = memory,
                      .source = source,
                      .tag = static_cast<uint64_t>(tag),
                      .deadline = Clock::now() + work->getTimeout()};
  const int first = source == kAny ? 0 : source;
  const int last = source == kAny ? size_ - 1 : source;
  size_t failed = 0;
  for (int peer = first; peer <= last; ++peer) {
    if (peer != rank_ && take_arrived(peer, posted)) return;
    if (in_[peer].state == State::kFailed || peer == rank_) ++failed;
  }
  if (failed == static_cast<size_t>(last - first + 1)) {
    work->complete(error_from(source == kAny ? "no other rank can send any more" : in_[source].failure));
    return;
  }
  posted_.push_back(posted);
  for (int peer = first; peer <= last; ++peer) {
    if (peer == rank_) continue;
    if (in_[peer].state == State::kUnused) in_[peer].state = State::kWanted;
    listen(peer);
  }
  start_clerk();
}

/// A message that came before its receive was posted.
bool Mail::take_arrived(int source, const Posted& posted) {
  auto& arrived = in_[source].arrived;
  const auto found =
      std::find_if(arrived.begin(), arrived.end(), [&](const Arrived& one) { return one.tag == posted.tag; });
  if (found == arrived.end()) return false;
  Arrived message = std::move(*found);
  arrived.erase(found);
  posted.work->set_source(source);
  if (message.bytes.size() != posted.memory.bytes()) {
    posted.work->complete(
        error_from(c10::str("rank ", source, " sent ", message.bytes.size(), " bytes with tag ", posted.tag,
                            ", but rank ", rank_, " receives ", posted.memory.bytes(), " bytes")));
    return true;
  }
  if (!message.bytes.empty()) std::memcpy(posted.memory.data, message.bytes.data(), message.bytes.size());
  posted.work->complete(nullptr);
  return true;
}

void Mail::transmit(Line& line, int peer, Outgoing message) {
  auto pending = std::make_unique<Pending>(Pending{.mail = this,
                                                   .what = Pending::What::kSent,
                                                   .peer = peer,
                                                   .header = message.header,
                                                   .work = message.work});
  const auto stream = tutti_stream_host(line.stream);
  const auto timeout = static_cast<uint64_t>(std::max<int64_t>(message.work->getTimeout().count(), 1));
  tutti_result_t result = tutti_comm_set_timeout(line.comm, std::min(timeout, kYearMs));
  if (result == TUTTI_SUCCESS)
    result = tutti_send(&pending->header, sizeof(Header), TUTTI_UINT8, kReceiver, 0, line.comm, stream);
  if (result == TUTTI_SUCCESS && message.header.bytes > 0)
    result =
        tutti_send(message.memory.data, message.header.bytes, TUTTI_UINT8, kReceiver, 0, line.comm, stream);
  if (result != TUTTI_SUCCESS) {
    const std::string why = tutti_last_error();
    (void)tutti_host_stream_synchronize(line.stream);  // the header may be on its way
    message.work->complete(error_of(result, why.c_str(), message.work->getTimeout()));
    return;
  }
  notify(line.stream, std::move(pending));
}

void Mail::notify(tutti_host_stream_t* stream, std::unique_ptr<Pending> pending) {
  Pending* const context = pending.release();
  const tutti_result_t result = tutti_host_stream_notify(stream, on_done, context);
  if (result != TUTTI_SUCCESS) on_done(context, result, tutti_last_error());
}

void Mail::on_done(void* context, tutti_result_t result, const char* text) {
  const std::unique_ptr<Pending> pending(static_cast<Pending*>(context));
  Mail& mail = *pending->mail;
  switch (pending->what) {
    case Pending::What::kSent: {
      const auto& work = pending->work;
      if (result != TUTTI_SUCCESS) mail.fail_line(pending->peer, false, text);
      work->complete(error_of(result, text, work->getTimeout()));
      return;
    }
    case Pending::What::kHeader: mail.on_header(pending->peer, result, text); return;
    case Pending::What::kPayload: mail.on_payload(*pending, result, text); return;
  }
}

bool Mail::wants(int source) const {
  return std::any_of(posted_.begin(), posted_.end(),
                     [&](const Posted& posted) { return posted.source == source || posted.source == kAny; });
}

/// Begins to receive the next header from `source`, if a posted receive may match it.
void Mail::listen(int source) {
  Line& line = in_[source];
  if (line.state != State::kReady || line.listening || !wants(source)) return;
  line.listening = true;
  (void)tutti_comm_set_timeout(line.comm, kYearMs);
  const tutti_result_t result = tutti_recv(&line.header, sizeof(Header), TUTTI_UINT8, kSender, 0, line.comm,
                                           tutti_stream_host(line.stream));
  if (result != TUTTI_SUCCESS) {
    line.listening = false;
    fail_line(source, true, tutti_last_error());
    return;
  }
  notify(line.stream, std::make_unique<Pending>(
                          Pending{.mail = this, .what = Pending::What::kHeader, .peer = source, .work = {}}));
}

std::list<Mail::Posted>::iterator Mail::match(int source, uint64_t tag) {
  return std::find_if(posted_.begin(), posted_.end(), [&](const Posted& posted) {
    return (posted.source == source || posted.source == kAny) && posted.tag == tag;
  });
}

void Mail::on_header(int source, tutti_result_t result, const char* text) {
  const std::scoped_lock lock(mutex_);
  in_[source].listening = false;
  if (!stopped_.empty()) return;
  if (result != TUTTI_SUCCESS) {
    fail_line(source, true, text);
    return;
  }
  take_message(source);
}

/// Receives the message that the line's header tells of: in place if a posted receive matches, else into
/// memory.
void Mail::take_message(int source) {
  Line& line = in_[source];
  const Header header = line.header;
  auto pending = std::make_unique<Pending>(
      Pending{.mail = this, .what = Pending::What::kPayload, .peer = source, .header = header, .work = {}});
  const auto found = match(source, header.tag);
  void* target = nullptr;
  if (found != posted_.end()) {
    pending->work = found->work;
    pending->wanted_bytes = found->memory.bytes();
    if (pending->wanted_bytes == header.bytes) target = found->memory.data;
    (void)tutti_comm_set_timeout(
        line.comm,
        std::clamp<uint64_t>(static_cast<uint64_t>(found->work->getTimeout().count()), 1, kYearMs));
    posted_.erase(found);
  }
  if (target == nullptr && header.bytes > 0) {
    pending->arrived = {.tag = header.tag, .bytes = std::vector<char>(header.bytes)};
    target = pending->arrived.bytes.data();
  }
  if (header.bytes > 0) {
    const tutti_result_t result =
        tutti_recv(target, header.bytes, TUTTI_UINT8, kSender, 0, line.comm, tutti_stream_host(line.stream));
    if (result != TUTTI_SUCCESS) {
      on_payload(*pending, result, tutti_last_error());
      return;
    }
  }
  notify(line.stream, std::move(pending));
}

void Mail::on_payload(Pending& pending, tutti_result_t result, const char* text) {
  const int source = pending.peer;
  const auto& work = pending.work;
  if (work && result == TUTTI_SUCCESS && pending.wanted_bytes == pending.header.bytes) {
    work->set_source(source);
    work->complete(nullptr);
  } else if (work && result == TUTTI_SUCCESS) {
    work->complete(error_from(c10::str("rank ", source, " sent ", pending.header.bytes, " bytes with tag ",
                                       pending.header.tag, ", but rank ", rank_, " receives ",
                                       pending.wanted_bytes, " bytes")));
  } else if (work) {
    work->complete(error_of(result, text, work->getTimeout()));
  }
  const std::scoped_lock lock(mutex_);
  if (!stopped_.empty()) return;
  if (result != TUTTI_SUCCESS) {
    fail_line(source, true, text);
    return;
  }
  if (!work) deliver(source, {.tag = pending.header.tag, .bytes = std::move(pending.arrived.bytes)});
  listen(source);
}

/// Gives a message to a receive that was posted meanwhile, or keeps it.
void Mail::deliver(int source, Arrived message) {
  const auto found = match(source, message.tag);
  in_[source].arrived.push_back(std::move(message));
  if (found == posted_.end()) return;
  const Posted posted = *found;
  posted_.erase(found);
  take_arrived(source, posted);
}

/// The line carries nothing any more: what waits for it fails.
void Mail::fail_line(int peer, bool is_incoming, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  Line& line = is_incoming ? in_[peer] : out_[peer];
  if (line.state == State::kFailed) return;
  line.state = State::kFailed;
  line.failure = why;
  const auto error = error_from(why);
  for (Outgoing& message : std::exchange(line.waiting, {})) message.work->complete(error);
  if (!is_incoming) return;
  const bool nobody_is_left = [&] {
    for (int other = 0; other < size_; ++other) {
      if (other != rank_ && in_[other].state != State::kFailed) return false;
    }
    return true;
  }();
  std::vector<c10::intrusive_ptr<Work>> failed;
  posted_.remove_if([&](const Posted& posted) {
    const bool fails = posted.source == peer || (posted.source == kAny && nobody_is_left);
    if (fails) failed.push_back(posted.work);
    return fails;
  });
  for (const auto& work : failed) work->complete(error);
}

void Mail::stop(const std::string& why) {
  std::vector<Line> lines;
  std::vector<c10::intrusive_ptr<Work>> open;
  std::thread clerk;
  {
    const std::scoped_lock lock(mutex_);
    if (is_stopping_) return;
    is_stopping_ = true;
    stopped_ = why;
    for (Posted& posted : posted_) open.push_back(posted.work);
    posted_.clear();
    for (auto* side : {&out_, &in_}) {
      for (Line& line : *side) {
        for (Outgoing& message : line.waiting) open.push_back(message.work);
        line.waiting.clear();
        line.state = State::kFailed;
        line.failure = why;
        lines.push_back({.comm = std::exchange(line.comm, nullptr),
                         .stream = std::exchange(line.stream, nullptr),
                         .failure = {},
                         .waiting = {},
                         .listening = side == &in_,
                         .arrived = {}});
      }
    }
    clerk = std::move(clerk_);
    changed_.notify_all();
  }
  if (clerk.joinable()) clerk.join();
  for (Line& line : lines) {
    // What was sent stays there for the receiver after a destroy. A line with operations under way is
    // aborted.
    const bool is_idle = line.stream != nullptr && tutti_host_stream_query(line.stream) != TUTTI_IN_PROGRESS;
    if (is_idle) {
      (void)tutti_comm_destroy(line.comm);
    } else {
      (void)tutti_comm_abort(line.comm);
    }
    (void)tutti_host_stream_destroy(line.stream);
  }
  for (const auto& work : open) work->complete(error_from(why));
}

void Mail::start_clerk() {
  changed_.notify_all();
  if (!clerk_.joinable()) clerk_ = std::thread([this] { run_clerk(); });
}

void Mail::run_clerk() {
  std::unique_lock lock(mutex_);
  auto next_look = Clock::now();
  while (stopped_.empty()) {
    if (Clock::now() >= next_look) {
      look_for_senders(lock);
      if (!stopped_.empty()) return;
      next_look = Clock::now() + kLookIntoStore;
    }
    bool is_creating = false;
    bool misses_senders = false;
    for (int peer = 0; peer < size_; ++peer) {
      is_creating |= advance_creation(out_[peer], peer, false);
      is_creating |= advance_creation(in_[peer], peer, true);
      misses_senders |= in_[peer].state == State::kWanted;
    }
    auto wake = Clock::time_point::max();
    if (expire(Clock::now(), wake)) continue;
    if (misses_senders) wake = std::min(wake, next_look);
    if (is_creating) wake = std::min(wake, Clock::now() + kLookAgain);
    if (wake == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, wake);
    }
  }
}

/// Begins to create the communicators of wanted senders that have put their id into the store.
void Mail::look_for_senders(std::unique_lock<std::recursive_mutex>& lock) {
  for (int peer = 0; peer < size_; ++peer) {
    if (in_[peer].state != State::kWanted) continue;
    std::vector<uint8_t> value;
    std::string failure;
    lock.unlock();
    try {
      if (store_->check({key(peer, rank_)})) value = store_->get(key(peer, rank_));
    } catch (const std::exception& error) {
      failure = error.what();
    }
    lock.lock();
    if (!stopped_.empty()) return;
    if (!failure.empty()) {
      fail_line(peer, true,
                c10::str("the store failed while rank ", rank_, " looked for rank ", peer, ": ", failure));
    } else if (value.size() == sizeof(tutti_unique_id_t)) {
      tutti_unique_id_t id;
      std::memcpy(id.bytes, value.data(), sizeof(id.bytes));
      begin(in_[peer], id, kReceiver);
    }
  }
}

void Mail::begin(Line& line, const tutti_unique_id_t& id, int pair_rank) {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.nonblocking = 1;
  config.setup_timeout_ms = kYearMs;  // each message has its own deadline
  const tutti_result_t result = tutti_comm_create(&line.comm, 2, id, pair_rank, &config);
  line.state = State::kCreating;
  if (result != TUTTI_SUCCESS && result != TUTTI_IN_PROGRESS) line.failure = tutti_last_error();
}

/// Goes on with the creation of a line's communicator. Returns whether it is under way.
bool Mail::advance_creation(Line& line, int peer, bool is_incoming) {
  if (!is_incoming && line.state == State::kWanted) {
    tutti_unique_id_t id;
    if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) {
      fail_line(peer, is_incoming, tutti_last_error());
      return false;
    }
    begin(line, id, kSender);
    try {
      store_->set(key(rank_, peer), std::vector<uint8_t>(id.bytes, id.bytes + sizeof(id.bytes)));
    } catch (const std::exception& error) {
      line.failure =
          c10::str("the store failed while rank ", rank_, " told rank ", peer, " its id: ", error.what());
    }
  }
  if (line.state != State::kCreating) return false;
  tutti_result_t state = TUTTI_SUCCESS;
  if (line.failure.empty()) {
    const tutti_result_t asked = tutti_comm_async_error(line.comm, &state);
    if (asked != TUTTI_SUCCESS) state = asked;
    if (state == TUTTI_IN_PROGRESS) return true;
    if (state == TUTTI_SUCCESS) state = tutti_host_stream_create(&line.stream);
    if (state != TUTTI_SUCCESS) line.failure = tutti_last_error();
  }
  if (!line.failure.empty()) {
    fail_line(peer, is_incoming, std::string(line.failure));
    return false;
  }
  line.state = State::kReady;
  if (is_incoming) forget(*store_, key(peer, rank_));
  for (Outgoing& message : std::exchange(line.waiting, {})) transmit(line, peer, std::move(message));
  if (is_incoming) listen(peer);
  return false;
}

/// Ends what has waited too long. Returns whether anything did. `next`: the earliest deadline of the rest.
bool Mail::expire(Clock::time_point now, Clock::time_point& next) {
  struct Expired {
    c10::intrusive_ptr<Work> work;
    std::string text;
  };
  std::vector<Expired> expired;
  const auto is_over = [&](const auto& one, const std::string& text) {
    if (one.deadline > now) {
      next = std::min(next, one.deadline);
      return false;
    }
    expired.push_back({one.work, text});
    return true;
  };
  posted_.remove_if([&](const Posted& posted) {
    const std::string source = posted.source == kAny ? "no rank" : c10::str("rank ", posted.source);
    return is_over(posted, c10::str(source, posted.source == kAny ? " has" : " has not", " sent rank ", rank_,
                                    " a message with tag ", posted.tag));
  });
  for (int peer = 0; peer < size_; ++peer) {
    out_[peer].waiting.remove_if([&](const Outgoing& message) {
      return is_over(message, c10::str("rank ", peer, " has not posted a receive from rank ", rank_));
    });
  }
  for (const Expired& one : expired)
    one.work->complete(error_of(TUTTI_TIMEOUT, one.text.c_str(), one.work->getTimeout()));
  return !expired.empty();
}

}  // namespace tutti_torch
