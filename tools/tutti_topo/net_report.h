// What tutti-topo --net finds: the rails of each host, each pair that was tried, and what is wrong with it.
// No network here: data in, text or JSON out.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tutti::tool {

/// One end: a port of an RDMA device, or a network interface with its TCP.
struct NetRail {
  std::string transport;    ///< "rdma" or "tcp"
  std::string name;         ///< "mlx5_0:1", "eth0"
  std::string address;      ///< GID or IP address, as text
  uint32_t mbit_per_s = 0;  ///< 0: not known
  uint32_t mtu_bytes = 0;   ///< 0: not known
};

struct NetHost {
  int rank = 0;  ///< that tries the host's rails: the lowest one
  std::string name;
  std::vector<NetRail> rails;
  std::string why_no_rdma;  ///< empty: there is RDMA
};

/// What one try of a pair found.
struct NetFigures {
  double latency_us = 0;  ///< of 8 bytes, one way
  double there_bytes_per_s = 0;
  double back_bytes_per_s = 0;
  std::string failure;  ///< empty: the numbers hold
};

struct NetPair {
  size_t host_a = 0;  ///< index
  NetRail rail_a;
  size_t host_b = 0;
  NetRail rail_b;
  NetFigures figures;
  std::vector<std::string> remarks;  ///< what is odd about a pair that works
};

struct NetReport {
  std::vector<NetHost> hosts;
  std::vector<NetPair> pairs;
};

/// Fills the remarks: pairs that are slow for their kind, uneven directions, ends that do not fit.
void judge(NetReport& report);
bool has_failure(const NetReport& report);
std::string show_net(const NetReport& report);
std::string show_net_json(const NetReport& report);

// Ranks exchange these as JSON.
void to_json(nlohmann::json& json, const NetRail& rail);
void from_json(const nlohmann::json& json, NetRail& rail);
void to_json(nlohmann::json& json, const NetHost& host);
void from_json(const nlohmann::json& json, NetHost& host);
void to_json(nlohmann::json& json, const NetFigures& figures);
void from_json(const nlohmann::json& json, NetFigures& figures);
void to_json(nlohmann::json& json, const NetPair& pair);
void from_json(const nlohmann::json& json, NetPair& pair);

}  // namespace tutti::tool
