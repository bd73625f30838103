#include "transports/rdma/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::rdma {
namespace {

/// A header with a short payload. A larger wish costs send queue memory on the device.
constexpr uint32_t kInlineWishes[] = {256, 64, 0};
constexpr uint8_t kTries = 6;       // Soft-RoCE (rdma_rxe, Linux 6.1) tries for ever at 7
constexpr uint8_t kRnrForever = 7;  // a peer without a receive is slow, not lost: it has a socket to tell
constexpr uint8_t kRnrTimer = 12;   // 0.64 ms
constexpr uint8_t kHops = 64;

}  // namespace

uint8_t timeout_for(uint64_t silence_ms) {
  // 7 tries of 4.096 us * 2^timeout; devices may take up to four times as long. 14: 0.47 s.
  constexpr uint8_t kMost = 14;
  constexpr uint8_t kLeast = 8;
  uint8_t timeout = kMost;
  while (timeout > kLeast && 4 * 7 * (4096ull << timeout) > silence_ms * 1'000'000) --timeout;
  return timeout;
}

Result<std::unique_ptr<QueuePair>> QueuePair::make(const Verbs& verbs, const Device& device, const Port& port,
                                                   const QueuePairOptions& options) {
  std::unique_ptr<QueuePair> pair(new QueuePair(verbs, port, options));
  TUTTI_TRY(pair->begin(device));
  return pair;
}

QueuePair::~QueuePair() {
  if (pair_ != nullptr) verbs_.destroy_qp(pair_);
}

Status QueuePair::begin(const Device& device) {
  ibv_qp_init_attr facts{};
  for (const uint32_t wish : kInlineWishes) {
    facts = {};
    facts.send_cq = facts.recv_cq = device.queue();
    facts.qp_type = IBV_QPT_RC;
    facts.cap = {.max_send_wr = options_.sends,
                 .max_recv_wr = options_.receives,
                 .max_send_sge = 1,
                 .max_recv_sge = 1,
                 .max_inline_data = wish};
    pair_ = verbs_.create_qp(device.domain(), &facts);
    if (pair_ != nullptr || errno != EINVAL) break;
  }
  if (pair_ == nullptr) return system_error("ibv_create_qp on " + describe(port_.address), errno);
  inline_bytes_ = facts.cap.max_inline_data;
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_INIT;
  change.port_num = port_.address.port;
  change.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const int error =
      verbs_.modify_qp(pair_, &change, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? Status::ok()
                    : system_error("ibv_modify_qp to INIT on " + describe(port_.address), error);
}

Status QueuePair::join(uint32_t first_packet, const Hello& peer) {
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_RTR;
  change.path_mtu = static_cast<ibv_mtu>(std::min(port_.address.mtu, peer.port.mtu));
  change.dest_qp_num = peer.queue_pair;
  change.rq_psn = peer.first_packet;
  change.max_dest_rd_atomic = 1;
  change.min_rnr_timer = kRnrTimer;
  change.ah_attr.port_num = port_.address.port;
  change.ah_attr.sl = options_.service_level;
  change.ah_attr.dlid = peer.port.lid;
  // InfiniBand within a subnet needs no GID.
  const bool is_same_subnet =
      std::equal(port_.address.gid.begin(), port_.address.gid.begin() + 8, peer.port.gid.begin());
  if (port_.address.is_ethernet || !is_same_subnet) {
    change.ah_attr.is_global = 1;
    std::memcpy(change.ah_attr.grh.dgid.raw, peer.port.gid.data(), peer.port.gid.size());
    change.ah_attr.grh.sgid_index = static_cast<uint8_t>(port_.gid_index);
    change.ah_attr.grh.hop_limit = kHops;
    change.ah_attr.grh.traffic_class = options_.traffic_class;
  }
  int error = verbs_.modify_qp(pair_, &change,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) {
    change = {};
    change.qp_state = IBV_QPS_RTS;
    change.timeout = options_.timeout;
    change.retry_cnt = kTries;
    change.rnr_retry = kRnrForever;
    change.sq_psn = first_packet;
    change.max_rd_atomic = 1;
    error = verbs_.modify_qp(pair_, &change,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  if (error == 0) return Status::ok();
  return system_error(format("ibv_modify_qp from %s to %s; check that the two GIDs reach each other, or set "
                             "TUTTI_IB_GID_INDEX",
                             describe(port_.address).c_str(), describe(peer.port).c_str()),
                      error);
}

void QueuePair::stop() {
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_ERR;
  verbs_.modify_qp(pair_, &change, IBV_QP_STATE);  // a failure here: the pair has stopped already
}

Status QueuePair::post(ibv_send_wr& request) {
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(pair_, &request, &refused);
  return error == 0 ? Status::ok() : system_error("ibv_post_send on " + describe(port_.address), error);
}

Status QueuePair::post(ibv_recv_wr& first, ibv_recv_wr*& refused) {
  const int error = ibv_post_recv(pair_, &first, &refused);
  if (error == 0) refused = nullptr;
  return error == 0 ? Status::ok() : system_error("ibv_post_recv on " + describe(port_.address), error);
}

}  // namespace tutti::rdma
