#include "transports/rdma/device.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tutti::rdma {
namespace {

bool is_ipv4(const Gid& gid) {
  constexpr Gid kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(gid.begin(), gid.begin() + 12, kMapped.begin());
}

bool is_link_local(const Gid& gid) {
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/// Higher is better.
int rank_of(const GidEntry& entry) {
  const int family = is_ipv4(entry.gid) ? 2 : is_link_local(entry.gid) ? 0 : 1;
  return (entry.is_routable ? 8 : 0) + (entry.is_interface_address ? 4 : 0) + family;
}

/// The addresses of a network interface in the form of GIDs.
std::vector<Gid> interface_gids(uint32_t index) {
  std::vector<Gid> gids;
  char name[IF_NAMESIZE] = "";
  ifaddrs* first = nullptr;
  if (index == 0 || if_indextoname(index, name) == nullptr || getifaddrs(&first) != 0) return gids;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || std::strcmp(one->ifa_name, name) != 0) continue;
    Gid gid{};
    if (one->ifa_addr->sa_family == AF_INET) {
      gid[10] = gid[11] = 0xff;
      std::memcpy(gid.data() + 12, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, 4);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr, gid.size());
    } else {
      continue;
    }
    gids.push_back(gid);
  }
  freeifaddrs(first);
  return gids;
}

std::vector<GidEntry> read_gids(const Verbs& verbs, ibv_context* context, uint8_t port, int count,
                                bool is_ethernet) {
  std::vector<GidEntry> entries;
  std::vector<Gid> addresses;
  uint32_t interface = 0;  // that has these addresses; most entries are of one interface
  for (int i = 0; i < count; ++i) {
    GidEntry entry{.index = static_cast<uint32_t>(i)};
    if (verbs.query_gid_ex != nullptr) {
      ibv_gid_entry found{};
      if (verbs.query_gid_ex(context, port, static_cast<uint32_t>(i), &found, 0, sizeof(found)) != 0)
        continue;
      std::memcpy(entry.gid.data(), found.gid.raw, entry.gid.size());
      entry.is_routable = !is_ethernet || found.gid_type == IBV_GID_TYPE_ROCE_V2;
      if (found.ndev_ifindex != interface) {
        interface = found.ndev_ifindex;
        addresses = interface_gids(interface);
      }
      entry.is_interface_address = std::ranges::find(addresses, entry.gid) != addresses.end();
    } else {
      ibv_gid found{};
      if (verbs.query_gid(context, port, i, &found) != 0) continue;
      std::memcpy(entry.gid.data(), found.raw, entry.gid.size());
      entry.is_routable = true;  // older libraries do not tell
    }
    if (entry.gid != Gid{}) entries.push_back(entry);
  }
  return entries;
}

/// Lanes times the rate of a lane, from the port's codes.
uint32_t mbit_per_s(uint8_t width_code, uint8_t speed_code) {
  uint32_t lanes = 1;
  switch (width_code) {
    case 2: lanes = 4; break;
    case 4: lanes = 8; break;
    case 8: lanes = 12; break;
    case 16: lanes = 2; break;
    default: break;
  }
  uint32_t lane = 0;
  switch (speed_code) {
    case 1: lane = 2500; break;
    case 2: lane = 5000; break;
    case 4:
    case 8: lane = 10'000; break;
    case 16: lane = 14'000; break;
    case 32: lane = 25'000; break;
    case 64: lane = 50'000; break;
    case 128: lane = 100'000; break;
    default: break;
  }
  return lanes * lane;
}

/// Appends the device's ports that can be used.
void read_ports(const Verbs& verbs, ibv_context* context, const DeviceChoice& choice, size_t device,
                std::vector<Port>& ports, std::string& why_none) {
  const std::string name = verbs.get_device_name(context->device);
  ibv_device_attr facts{};
  if (verbs.query_device(context, &facts) != 0) return;
  for (uint8_t number = 1; number <= facts.phys_port_cnt; ++number) {
    if (!filter_names(choice.filter, name, number)) continue;
    ibv_port_attr port{};
    if (verbs.query_port(context, number, reinterpret_cast<_compat_ibv_port_attr*>(&port)) != 0) continue;
    const std::string label = format("%s port %u", name.c_str(), number);
    if (port.state != IBV_PORT_ACTIVE) {
      add_to_list(why_none, label + " is down");
      continue;
    }
    const bool is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    const std::vector<GidEntry> gids = read_gids(verbs, context, number, port.gid_tbl_len, is_ethernet);
    const GidEntry* gid = choose_gid(gids, choice.gid_index);
    if (gid == nullptr) {
      add_to_list(why_none, label + " has no GID" +
                                (choice.gid_index >= 0 ? format(" at index %d", choice.gid_index) : ""));
      continue;
    }
    ports.push_back({.device = device,
                     .address = {.device = name.substr(0, kNameBytes - 1),
                                 .port = number,
                                 .is_ethernet = is_ethernet,
                                 .mtu = static_cast<uint8_t>(port.active_mtu),
                                 .lid = port.lid,
                                 .mbit_per_s = mbit_per_s(port.active_width, port.active_speed),
                                 .gid = gid->gid},
                     .gid_index = gid->index});
  }
}

/// The PCI address of a device, or of the card that a virtual function belongs to; empty: it has none.
std::string pci_address_of(const ibv_device& device) {
  for (const char* const link : {"/device/physfn", "/device"}) {
    std::error_code failure;
    const auto target = std::filesystem::read_symlink(std::string(device.ibdev_path) + link, failure);
    if (!failure) return target.filename();
  }
  return {};
}

/// Orders the fastest ports, which come first, by their distance. Slower ones are as far ones: they serve
/// when no other does.
void order_by_distance(const OrderCards& order_cards, const std::vector<Context>& contexts,
                       std::vector<Port>& ports) {
  std::vector<std::string> addresses;
  for (Port& port : ports) {
    port.address.is_near = port.address.mbit_per_s == ports[0].address.mbit_per_s;
    if (port.address.is_near) addresses.push_back(pci_address_of(*contexts[port.device]->device));
  }
  if (order_cards == nullptr || addresses.size() < 2) return;
  std::vector<Port> ordered;
  for (const CardUse& use : order_cards(addresses)) {
    Port& port = ordered.emplace_back(ports[use.card]);
    port.address.is_near = use.is_near;
    port.distance = use.distance;
  }
  std::ranges::copy(ordered, ports.begin());
}

}  // namespace

const GidEntry* choose_gid(const std::vector<GidEntry>& entries, int forced) {
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : entries) {
    if (forced >= 0 && entry.index != static_cast<uint32_t>(forced)) continue;
    if (best == nullptr || rank_of(entry) > rank_of(*best)) best = &entry;
  }
  return best;
}

bool filter_names(std::string_view filter, std::string_view device, uint32_t port) {
  if (filter.empty()) return true;
  const bool excludes = filter[0] == '^';
  if (excludes) filter.remove_prefix(1);
  const bool is_exact = !filter.empty() && filter[0] == '=';
  if (is_exact) filter.remove_prefix(1);
  const std::string own_port = std::to_string(port);
  while (!filter.empty()) {
    const size_t comma = std::min(filter.find(','), filter.size());
    std::string_view item = filter.substr(0, comma);
    filter.remove_prefix(std::min(comma + 1, filter.size()));
    if (item.empty()) continue;
    const size_t colon = item.find(':');
    if (colon != std::string_view::npos) {
      if (item.substr(colon + 1) != own_port) continue;
      item = item.substr(0, colon);
    }
    if (is_exact ? device == item : device.starts_with(item)) return !excludes;
  }
  return excludes;
}

bool refresh(const Verbs& verbs, ibv_context* context, const DeviceChoice& choice, Port& port) {
  std::vector<Port> found;
  std::string why_none;
  read_ports(verbs, context, choice, port.device, found, why_none);
  for (const Port& one : found) {
    if (one.address.port != port.address.port) continue;
    port.address = one.address;
    port.gid_index = one.gid_index;
  }
  port.is_up =
      std::ranges::any_of(found, [&](const Port& one) { return one.address.port == port.address.port; });
  return port.is_up;
}

Ports find_ports(const Verbs& verbs, const DeviceChoice& choice, std::string& why_none) {
  Ports found;
  int count = 0;
  ibv_device** const list = verbs.get_device_list(&count);
  if (list == nullptr || count == 0) {
    if (list != nullptr) verbs.free_device_list(list);
    why_none = "the machine has no RDMA device";
    return found;
  }
  found.has_device = true;
  for (int i = 0; i < count; ++i) {
    Context context(verbs.open_device(list[i]), {&verbs});
    if (context == nullptr) {
      add_to_list(why_none,
                  format("%s cannot be opened (%s)", verbs.get_device_name(list[i]), std::strerror(errno)));
      continue;
    }
    const size_t before = found.ports.size();
    read_ports(verbs, context.get(), choice, found.contexts.size(), found.ports, why_none);
    if (found.ports.size() > before) found.contexts.push_back(std::move(context));
  }
  verbs.free_device_list(list);
  std::ranges::stable_sort(
      found.ports, [](const Port& a, const Port& b) { return a.address.mbit_per_s > b.address.mbit_per_s; });
  if (!found.ports.empty()) {
    const bool is_ethernet = found.ports[0].address.is_ethernet;
    std::erase_if(found.ports, [&](const Port& port) { return port.address.is_ethernet != is_ethernet; });
    order_by_distance(choice.order_cards, found.contexts, found.ports);
    if (found.ports.size() > kMostPorts) found.ports.resize(kMostPorts);
  } else if (why_none.empty()) {
    why_none = "TUTTI_IB_HCA names no port of this machine";
  }
  return found;
}

Result<std::unique_ptr<Device>> Device::open(const Verbs& verbs, ibv_context& context, uint32_t completions) {
  std::unique_ptr<Device> device(new Device(verbs, context));
  TUTTI_TRY(device->prepare(completions));
  return device;
}

Status Device::prepare(uint32_t completions) {
  const auto failed = [&](const char* what) {
    return system_error(format("%s on RDMA device %s", what, verbs_.get_device_name(context_.device)), errno);
  };
  // Events and wakes are read without blocking.
  const auto unblock = [](int fd) { return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0; };
  if (!unblock(context_.async_fd)) return failed("fcntl");
  domain_ = verbs_.alloc_pd(&context_);
  if (domain_ == nullptr) return failed("ibv_alloc_pd");
  channel_ = verbs_.create_comp_channel(&context_);
  if (channel_ == nullptr) return failed("ibv_create_comp_channel");
  if (!unblock(channel_->fd)) return failed("fcntl");
  ibv_device_attr facts{};
  if (verbs_.query_device(&context_, &facts) != 0) return failed("ibv_query_device");
  const int most = facts.max_cqe;
  queue_ = verbs_.create_cq(&context_, std::min(static_cast<int>(completions), most), nullptr, channel_, 0);
  return queue_ != nullptr ? Status::ok() : failed("ibv_create_cq");
}

Device::~Device() {
  if (queue_ != nullptr) {
    take_wakes();
    verbs_.destroy_cq(queue_);
  }
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
  if (domain_ != nullptr) verbs_.dealloc_pd(domain_);
}

void Device::take_wakes() {
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  unsigned count = 0;
  while (verbs_.get_cq_event(channel_, &queue, &unused) == 0) ++count;
  // An event that is not acknowledged blocks ibv_destroy_cq.
  if (count > 0) verbs_.ack_cq_events(queue_, count);
}

Status Device::arm() {
  take_wakes();
  const int error = ibv_req_notify_cq(queue_, 0);
  return error == 0 ? Status::ok() : system_error("ibv_req_notify_cq", error);
}

bool Device::next_event(ibv_event_type& type, uint32_t& port) {
  ibv_async_event event{};
  if (verbs_.get_async_event(&context_, &event) != 0) return false;
  type = event.event_type;
  const bool is_port = type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE ||
                       type == IBV_EVENT_LID_CHANGE || type == IBV_EVENT_GID_CHANGE ||
                       type == IBV_EVENT_PKEY_CHANGE;
  port = is_port ? static_cast<uint32_t>(event.element.port_num) : 0;
  verbs_.ack_async_event(&event);
  return true;
}

Result<Region> Region::make(const Verbs& verbs, ibv_pd* domain, void* address, size_t bytes, int rights) {
  Region region;
  region.verbs_ = &verbs;
  region.region_ = verbs.reg_mr(domain, address, bytes, rights);
  if (region.region_ != nullptr) return region;
  if (errno == ENOMEM) {
    return Status(Code::kOutOfMemory,
                  format("ibv_reg_mr of %zu bytes: the limit of locked memory is reached; raise it (ulimit "
                         "-l unlimited, LimitMEMLOCK= of the service, memlock in limits.conf)",
                         bytes));
  }
  return system_error("ibv_reg_mr", errno);
}

Result<Region> Region::make(const Verbs& verbs, ibv_pd* domain, const DeviceSpan& span, int rights) {
  if (verbs.reg_dmabuf_mr == nullptr)
    return Status(Code::kUnsupported,
                  "libibverbs.so.1 lacks ibv_reg_dmabuf_mr: install rdma-core 34 or newer");
  Region region;
  region.verbs_ = &verbs;
  region.region_ = verbs.reg_dmabuf_mr(domain, 0, span.bytes, reinterpret_cast<uint64_t>(span.address),
                                       span.descriptor, rights);
  if (region.region_ != nullptr) return region;
  const int error = errno;
  const std::string what =
      format("ibv_reg_dmabuf_mr of %llu bytes of the GPU's memory on %s",
             static_cast<unsigned long long>(span.bytes), verbs.get_device_name(domain->context->device));
  if (error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT)
    return Status(Code::kUnsupported,
                  what + ": the card's driver cannot; it needs Linux 5.12 and a driver that takes dma-bufs");
  if (error == ENOMEM)
    return Status(Code::kOutOfMemory,
                  what + ": no room in the GPU's window on the bus (BAR1) or in the card's tables");
  return system_error(what, error);
}

Region::Region(Region&& other) noexcept
    : verbs_(other.verbs_), region_(std::exchange(other.region_, nullptr)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(verbs_, other.verbs_);
  std::swap(region_, other.region_);
  return *this;
}

Region::~Region() {
  if (region_ != nullptr) verbs_->dereg_mr(region_);
}

}  // namespace tutti::rdma
