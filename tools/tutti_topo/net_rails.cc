// The rails of this machine: the RDMA ports that jobs use, and the interfaces that their connections use.
#include <unistd.h>

#include <fstream>

#include "core/config.h"
#include "net/endpoint.h"
#include "tools/tutti_topo/net.h"
#include "transports/rdma/rdma_transport.h"

namespace tutti::tool {
namespace {

/// A number in a file of /sys; 0: there is none, as for the speed of virtual interfaces.
uint32_t number_of(const std::string& interface, const char* file) {
  std::ifstream stream("/sys/class/net/" + interface + "/" + file);
  int64_t number = 0;
  return stream >> number && number > 0 && number < UINT32_MAX ? static_cast<uint32_t>(number) : 0;
}

std::string address_text(const Endpoint& endpoint) {
  const std::string text = endpoint.text();
  return text.substr(0, text.rfind(':'));
}

Status add_interfaces(const Config& config, std::vector<NetRail>& rails) {
  const auto all = list_interface_addresses();
  TUTTI_TRY(all.status());
  const auto chosen = select_addresses(*all, config.socket_ifname);
  TUTTI_TRY(chosen.status());
  // The best address of each interface, best first.
  for (const Endpoint& endpoint : *chosen) {
    const auto one = std::ranges::find_if(*all, [&](const auto& each) { return each.endpoint == endpoint; });
    const auto is_there = [&](const NetRail& rail) {
      return rail.transport == "tcp" && rail.name == one->interface;
    };
    if (std::ranges::any_of(rails, is_there)) continue;
    rails.push_back({.transport = "tcp",
                     .name = one->interface,
                     .address = address_text(endpoint),
                     .mbit_per_s = number_of(one->interface, "speed"),
                     .mtu_bytes = number_of(one->interface, "mtu")});
  }
  return Status::ok();
}

void add_ports(const Config& config, NetHost& host) {
  constexpr uint32_t kHalfOfLeastMtu = 128;  // enum ibv_mtu: 1 is 256
  const auto ports = rdma::list_ports(config);
  if (!ports) {
    host.why_no_rdma = ports.status().text();
    return;
  }
  for (const rdma::PortAddress& port : *ports) {
    host.rails.push_back({.transport = "rdma",
                          .name = port.device + ":" + std::to_string(port.port),
                          .address = rdma::gid_text(port.gid),
                          .mbit_per_s = port.mbit_per_s,
                          .mtu_bytes = kHalfOfLeastMtu << port.mtu});
  }
}

}  // namespace

Result<NetHost> find_rails() {
  const auto config = read_config(process_environment());
  TUTTI_TRY(config.status());
  NetHost host;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  host.name = name;
  if (!config->host_id.empty()) host.name += "/" + config->host_id;
  add_ports(*config, host);
  TUTTI_TRY(add_interfaces(*config, host.rails));
  return host;
}

}  // namespace tutti::tool
