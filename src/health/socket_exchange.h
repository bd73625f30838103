// SocketExchange: how two ranks of different hosts make a new data socket in place of a torn one, beside the
// data: on the control threads, while the applications compute.
//
//   any     -> higher rank   kRenew without endpoints: this socket is torn
//   higher  -> lower rank    kRenew with endpoints: the higher rank listens there for a while
//   lower rank connects; both prove the job's key, as for the first socket (net/handshake.h)
//
// The messages take the control connection, which is also the sign of life: once it has ended, no socket
// comes. A rank listens only meanwhile, so a job holds no port and no descriptor for this.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/acceptor.h"
#include "net/connector.h"
#include "net/control_thread.h"
#include "net/endpoint.h"
#include "net/frame.h"
#include "transports/socket_renewal.h"

namespace tutti {

class SocketExchange final : public SocketRenewal {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t sockets = 0;  ///< to each peer
    Credentials credentials = {};
    ListenOptions listen = {};
    /// As ControlPlane::send.
    std::function<void(uint32_t peer, const FrameHeader& header, std::span<const std::byte> body)> send = {};
  };

  SocketExchange(ControlThread& control, uint32_t rank_count) : control_(control), gone_(rank_count) {}
  ~SocketExchange() override { close(); }
  SocketExchange(const SocketExchange&) = delete;
  SocketExchange& operator=(const SocketExchange&) = delete;

  /// Before this call, requests do nothing.
  void open(Options options);
  /// Afterwards the control thread uses nothing of this object.
  void close();

  // On the control thread:
  void handle(uint32_t peer, const Frame& frame);
  /// The peer has left or is lost.
  void give_up(uint32_t peer) noexcept;

  void request(uint32_t peer, uint32_t index) override;
  uint32_t arrivals() const override { return arrivals_.load(std::memory_order_acquire); }
  FileDescriptor take(uint32_t peer, uint32_t index) override;
  bool is_in_vain(uint32_t peer) const override;

 private:
  using Name = std::pair<uint32_t, uint32_t>;  ///< peer, index

  void listen_for(const Name& name);
  void stop_listening();
  void dial(const Name& name, std::span<const std::byte> packed);
  void arrive(const Name& name, FileDescriptor socket);

  ControlThread& control_;
  // Used only while the control thread is held.
  Options options_;
  bool is_open_ = false;
  std::unique_ptr<Acceptor> acceptor_;  ///< null: does not listen
  PackedEndpoints endpoints_{};
  std::set<Name> awaited_;  ///< by the acceptor
  EventLoop::Timer patience_;
  std::map<Name, std::unique_ptr<Connector>> connectors_;

  std::atomic<uint32_t> arrivals_ = 0;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<Name, FileDescriptor> arrived_;
  std::vector<bool> gone_;  ///< by rank
};

}  // namespace tutti
