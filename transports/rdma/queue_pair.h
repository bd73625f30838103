// QueuePair: a reliable connection (RC) between two devices, from its creation to its error state.
#pragma once

#include <cstdint>
#include <memory>

#include "core/result.h"
#include "transports/rdma/device.h"
#include "transports/rdma/hello.h"

namespace tutti::rdma {

struct QueuePairOptions {
  uint32_t sends = 128;  ///< requests that may wait in the send queue
  uint32_t receives = 40;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint8_t timeout = 14;  ///< of one try: 4.096 us * 2^timeout
};

/// How long a try may last, as QueuePairOptions::timeout: all tries together end before `silence_ms`, and
/// within about a second.
uint8_t timeout_for(uint64_t silence_ms);

class QueuePair {
 public:
  /// In the state that receives can be posted to. Errors: kSystemError, kOutOfMemory.
  static Result<std::unique_ptr<QueuePair>> make(const Verbs& verbs, const Device& device, const Port& port,
                                                 const QueuePairOptions& options);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  uint32_t number() const { return pair_->qp_num; }
  /// Payloads up to this size may be copied into the request.
  uint32_t inline_bytes() const { return inline_bytes_; }
  /// Connects to the peer's queue pair; afterwards it sends and receives. Errors: kSystemError, with the
  /// port and what to try.
  Status join(uint32_t first_packet, const Hello& peer);
  /// Nothing moves any more; all requests complete with an error.
  void stop();

  Status post(ibv_send_wr& request);
  /// Posts a list. `refused`: the first one that is not posted; null: all are.
  Status post(ibv_recv_wr& first, ibv_recv_wr*& refused);

 private:
  QueuePair(const Verbs& verbs, const Port& port, const QueuePairOptions& options)
      : verbs_(verbs), port_(port), options_(options) {}
  Status begin(const Device& device);

  const Verbs& verbs_;
  Port port_;
  QueuePairOptions options_;
  ibv_qp* pair_ = nullptr;
  uint32_t inline_bytes_ = 0;
};

}  // namespace tutti::rdma
