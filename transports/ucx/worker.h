// Worker: one rank's part of UCX: a context, and a worker that sends and receives active messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "transports/ucx/ucp.h"

namespace tutti::ucx {

/// The number of tutti's active messages.
inline constexpr unsigned kMessageId = 0x7475;

/// The bits of fabric (wire.h) among the resources that ucp_context_print_info lists: "rc_verbs/mlx5_0:1".
/// UCX has no other list that respects UCX_TLS and UCX_NET_DEVICES.
uint32_t fabrics_in(std::string_view resources);

/// Whether a device in `folder` (as /sys/class/infiniband) is software: no hardware lies behind it.
bool has_software_device(const std::string& folder);

class Worker {
 public:
  /// Errors: kSystemError, kOutOfMemory.
  static Result<std::unique_ptr<Worker>> open(const Ucp& ucp);
  /// Destroys the worker's endpoints too. Callbacks may come until then.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const Ucp& ucp() const { return ucp_; }
  ucp_worker_h get() const { return worker_; }
  const std::vector<std::byte>& address() const { return address_; }
  uint32_t fabrics() const { return fabrics_; }
  /// Readable when something has happened since arm().
  int descriptor() const { return descriptor_; }

  /// All messages go to `take`. Errors: kSystemError.
  Status receive_with(ucp_am_recv_callback_t take, void* argument);
  /// One turn. True if anything happened. Not from a callback.
  bool progress() { return ucp_.worker_progress(worker_) != 0; }
  /// Takes what has come, without blocking.
  void drain();
  /// False: something has happened already, or arming is impossible.
  bool arm() { return ucp_.worker_arm(worker_) == UCS_OK; }

 private:
  explicit Worker(const Ucp& ucp) : ucp_(ucp) {}
  Status make_context();
  void avoid_datagrams(ucp_config_t* config) const;
  Status make_worker();
  uint32_t find_fabrics() const;

  const Ucp& ucp_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  uint32_t fabrics_ = 0;
  int descriptor_ = -1;
};

}  // namespace tutti::ucx
