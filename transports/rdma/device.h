// Device: an opened RDMA device with what a rank needs of it: protection domain, completion queue, events.
// And the choice of ports: which of the machine's ports this rank uses, and with which GID.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "transports/device_span.h"
#include "transports/rdma/hello.h"
#include "transports/rdma/verbs.h"
#include "transports/transport.h"

namespace tutti::rdma {

/// An entry of a port's GID table.
struct GidEntry {
  Gid gid{};
  uint32_t index = 0;
  bool is_routable = false;           ///< RoCE v2; InfiniBand's entries count as routable
  bool is_interface_address = false;  ///< an IP address of the entry's network interface
};

/// The best entry: RoCE v2 before v1, an address of the interface before others, IPv4 before IPv6 before
/// link-local, then the lowest index. `forced`: this index, or -1. Null: there is none.
const GidEntry* choose_gid(const std::vector<GidEntry>& entries, int forced);

/// Whether a filter of the user names a port. Form: prefixes of "device" or "device:port", separated by
/// commas; "=" in front: whole names; "^": all but these. An empty filter names all.
bool filter_names(std::string_view filter, std::string_view device, uint32_t port);

/// A port that was up when it was found.
struct Port {
  size_t device = 0;  ///< index in Ports::contexts
  PortAddress address;
  uint32_t gid_index = 0;
  bool is_up = true;          ///< kept up to date by the port's owner
  std::string distance = {};  ///< from the rank, as CardUse::distance
};

struct DeviceChoice {
  std::string filter;                ///< as filter_names
  int gid_index = -1;                ///< -1: choose_gid decides
  OrderCards order_cards = nullptr;  ///< null: all are as near
};

struct ContextCloser {
  const Verbs* verbs = nullptr;
  void operator()(ibv_context* context) const { verbs->close_device(context); }
};
using Context = std::unique_ptr<ibv_context, ContextCloser>;

/// The opened devices and their usable ports: of the fastest ones the nearest first, and then slower ones.
/// All are InfiniBand or all are RoCE.
struct Ports {
  std::vector<Context> contexts;
  std::vector<Port> ports;
  bool has_device = false;  ///< the machine has an RDMA device, of use or not
};

/// Reads the state, MTU and GID of a port again. False: it is not usable now.
bool refresh(const Verbs& verbs, ibv_context* context, const DeviceChoice& choice, Port& port);

/// Opens the devices that have a port in use. No port is no error. `why_none`: in words, if there is none.
Ports find_ports(const Verbs& verbs, const DeviceChoice& choice, std::string& why_none);

/// Protection domain, completion queue and their events, of one device.
class Device {
 public:
  /// `completions`: that may wait unread. Errors: kSystemError, kOutOfMemory.
  static Result<std::unique_ptr<Device>> open(const Verbs& verbs, ibv_context& context, uint32_t completions);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context& context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* queue() const { return queue_; }
  /// Makes a later completion wake poll(2) on completion_descriptor(). Completions that are there already do
  /// not: look at the queue after this. Errors: kSystemError.
  Status arm();
  int completion_descriptor() const { return channel_->fd; }
  int event_descriptor() const { return context_.async_fd; }
  /// Reads an asynchronous event; false: none now.
  bool next_event(ibv_event_type& type, uint32_t& port);

 private:
  Device(const Verbs& verbs, ibv_context& context) : verbs_(verbs), context_(context) {}
  Status prepare(uint32_t completions);
  void take_wakes();

  const Verbs& verbs_;
  ibv_context& context_;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
};

/// Memory that a device may read, and write if the rights say so.
class Region {
 public:
  Region() = default;
  /// Errors: kOutOfMemory (the limit of locked memory), kSystemError.
  static Result<Region> make(const Verbs& verbs, ibv_pd* domain, void* address, size_t bytes, int rights);
  /// Of a device, through its dma-buf. Errors: as `make`; kUnsupported: library, kernel or card cannot.
  static Result<Region> make(const Verbs& verbs, ibv_pd* domain, const DeviceSpan& span, int rights);
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  bool is_open() const { return region_ != nullptr; }
  uint32_t local_key() const { return region_->lkey; }
  uint32_t remote_key() const { return region_->rkey; }

 private:
  const Verbs* verbs_ = nullptr;
  ibv_mr* region_ = nullptr;
};

/// Memory that may still be registered for slots and for the heap, of all connections of a rank. Ranks on a
/// large job would otherwise pin hundreds of rings.
struct PinBudget {
  uint64_t left_bytes = 0;
};

}  // namespace tutti::rdma
