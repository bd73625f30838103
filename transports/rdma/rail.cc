#include "transports/rdma/rail.h"

#include <arpa/inet.h>

#include <utility>

#include "core/clock.h"
#include "core/random.h"

namespace tutti::rdma {

std::string Rail::describe() const {
  const std::string distance = port_.distance.empty() ? "" : " (" + port_.distance + ")";
  return rdma::describe(port_.address) + distance + " to " + rdma::describe(peer_);
}

Status Rail::start(uint32_t attempt) {
  attempt_ = attempt;
  has_ready_ = peer_is_up_ = peer_has_joined = false;
  const Status made = make();
  if (!made) {
    why_off_ = made.text();
    if (pair_ != nullptr) pair_->stop();
    return made;
  }
  state_ = State::kGreeting;
  return made;
}

Status Rail::make() {
  const uint32_t receives = options_.queue_pair.receives;
  if (!receives_.is_open()) {
    auto memory = map_plain(size_t{receives} * kPieceBytes);
    TUTTI_TRY(memory.status());
    receive_memory_ = std::move(*memory);
    auto region = Region::make(verbs_, device_.domain(), receive_memory_.base(), receive_memory_.bytes(),
                               IBV_ACCESS_LOCAL_WRITE);
    TUTTI_TRY(region.status());
    receives_ = std::move(*region);
  }
  if (!sends_.is_open()) {
    auto sends = Region::make(verbs_, device_.domain(), send_memory_.data(), send_memory_.size(), 0);
    TUTTI_TRY(sends.status());
    sends_ = std::move(*sends);
  }
  auto pair = QueuePair::make(verbs_, device_, port_, options_.queue_pair);
  TUTTI_TRY(pair.status());
  pair_ = std::move(*pair);
  requests_used_ = 0;
  static_assert(QueuePairOptions{}.receives % kRepostBatch == 0);
  returned_count_ = 0;
  for (uint32_t i = 0; i < receives; ++i) TUTTI_TRY(repost(i));
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(&first_packet_, 1))));
  first_packet_ &= PieceWord::kCountMask;
  return Status::ok();
}

Hello Rail::hello() const {
  return {.rank = options_.rank,
          .epoch = options_.epoch,
          .queue_pair = pair_->number(),
          .first_packet = first_packet_,
          .receive_count = options_.queue_pair.receives,
          .piece_bytes = kPieceBytes,
          .port = port_.address};
}

Status Rail::join(const Hello& peer) {
  peer_ = peer.port;
  TUTTI_TRY(pair_->join(first_packet_, peer));
  state_ = State::kJoining;
  return Status::ok();
}

Status Rail::prove() {
  state_ = State::kProving;
  return post_piece(kNoLane, PieceWord{.kind = static_cast<uint32_t>(Piece::kReady)}.pack(), kSendBuffers,
                    kPieceBytes, 0);
}

bool Rail::rise() {
  if (state_ != State::kProving || !has_ready_ || !sent_.empty()) return false;
  state_ = State::kUp;
  why_off_.clear();
  up_ns = now_ns();
  return true;
}

void Rail::stop(const std::string& why) {
  state_ = State::kOff;
  why_off_ = why;
  stopped_ns = now_ns();
  if (pair_ != nullptr) pair_->stop();
}

void Rail::release() {
  pair_.reset();
}

Status Rail::post_piece(uint32_t lane, uint32_t word, int32_t buffer, uint32_t bytes, uint32_t requests) {
  ibv_sge source{.addr = 0, .length = bytes, .lkey = sends_.local_key()};
  ibv_send_wr request{};
  request.wr_id = WorkId{.connection = options_.connection,
                         .rail = options_.index,
                         .attempt = attempt_,
                         .request = WorkId::kPiece}
                      .pack();
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(word);
  request.send_flags = IBV_SEND_SIGNALED;
  if (buffer >= 0 && bytes > 0) {
    source.addr =
        reinterpret_cast<uint64_t>(send_memory_.data()) + static_cast<uint64_t>(buffer) * kPieceBytes;
    request.sg_list = &source;
    request.num_sge = 1;
    if (bytes <= pair_->inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
  }
  TUTTI_TRY(pair_->post(request));
  ++requests_used_;
  sent_.push_back({.lane = lane, .requests = requests + 1});
  return Status::ok();
}

Status Rail::post_write(const Write& write) {
  ibv_sge source{
      .addr = reinterpret_cast<uint64_t>(write.source), .length = write.bytes, .lkey = write.local_key};
  ibv_send_wr request{};
  request.wr_id = WorkId{.connection = options_.connection,
                         .rail = options_.index,
                         .attempt = attempt_,
                         .request = WorkId::kWrite}
                      .pack();
  request.sg_list = &source;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = write.target;
  request.wr.rdma.rkey = write.remote_key;
  TUTTI_TRY(pair_->post(request));
  ++requests_used_;
  return Status::ok();
}

uint32_t Rail::take_sent() {
  if (sent_.empty()) return kNoLane;
  const Sent sent = sent_.front();
  sent_.pop_front();
  requests_used_ -= sent.requests;
  return sent.lane;
}

Status Rail::repost(uint64_t receive) {
  returned_[returned_count_++] = receive;
  return returned_count_ == returned_.size() ? post_returned() : Status::ok();
}

Status Rail::post_returned() {
  std::array<ibv_sge, kRepostBatch> targets{};
  std::array<ibv_recv_wr, kRepostBatch> requests{};
  const uint32_t count = std::exchange(returned_count_, 0);
  for (uint32_t i = 0; i < count; ++i) {
    targets[i] = {.addr = reinterpret_cast<uint64_t>(receive_memory_.base()) + returned_[i] * kPieceBytes,
                  .length = kPieceBytes,
                  .lkey = receives_.local_key()};
    requests[i].wr_id = WorkId{.connection = options_.connection,
                               .rail = options_.index,
                               .attempt = attempt_,
                               .request = returned_[i]}
                            .pack();
    requests[i].sg_list = &targets[i];
    requests[i].num_sge = 1;
    requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
  }
  ibv_recv_wr* refused = nullptr;
  const Status posted = pair_->post(requests[0], refused);
  receives_out_ += refused == nullptr ? count : static_cast<uint32_t>(refused - requests.data());
  return posted;
}

}  // namespace tutti::rdma
