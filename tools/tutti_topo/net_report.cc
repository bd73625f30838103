#include "tools/tutti_topo/net_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/result.h"
#include "topology/units.h"

namespace tutti::tool {
namespace {

using Json = nlohmann::json;

/// A pair below this part of the best one of its kind is told.
constexpr double kSlowPart = 0.5;

std::string speed(double bytes_per_s) {
  return topology::round_speed(static_cast<uint64_t>(bytes_per_s));
}

/// Pairs that should be equally fast: of one transport and rate.
std::pair<std::string, uint32_t> kind_of(const NetPair& pair) {
  return {pair.rail_a.transport, std::min(pair.rail_a.mbit_per_s, pair.rail_b.mbit_per_s)};
}

double slower_direction(const NetFigures& figures) {
  return std::min(figures.there_bytes_per_s, figures.back_bytes_per_s);
}

std::string ends_text(const char* what, uint32_t a, uint32_t b, const char* unit) {
  if (a == b || a == 0 || b == 0) return {};
  return format("%s %u and %u%s at the two ends: the lesser counts", what, a, b, unit);
}

void judge_one(NetPair& pair, double best_bytes_per_s, double best_latency_us) {
  const NetRail& a = pair.rail_a;
  const NetRail& b = pair.rail_b;
  const NetFigures& found = pair.figures;
  for (const std::string& text : {ends_text("MTU", a.mtu_bytes, b.mtu_bytes, ""),
                                  ends_text("rates of", a.mbit_per_s, b.mbit_per_s, " Mbit/s")}) {
    if (!text.empty()) pair.remarks.push_back(text);
  }
  if (!found.failure.empty()) return;
  if (slower_direction(found) < kSlowPart * best_bytes_per_s)
    pair.remarks.push_back(format("slow: the best %s pair of this rate has %s", a.transport.c_str(),
                                  speed(best_bytes_per_s).c_str()));
  const double faster = std::max(found.there_bytes_per_s, found.back_bytes_per_s);
  if (slower_direction(found) < kSlowPart * faster)
    pair.remarks.push_back("one direction has less than half of the other one's bandwidth");
  if (found.latency_us * kSlowPart > best_latency_us)
    pair.remarks.push_back(
        format("late: the best %s pair of this rate takes %.1f us", a.transport.c_str(), best_latency_us));
}

std::string end_text(const NetReport& report, size_t host, const NetRail& rail) {
  return report.hosts.at(host).name + " " + rail.name;
}

std::string host_text(const NetHost& host) {
  std::string text = format("%s (rank %d)\n", host.name.c_str(), host.rank);
  for (const NetRail& rail : host.rails) {
    text += format("  %-4s %s, %s", rail.transport.c_str(), rail.name.c_str(), rail.address.c_str());
    if (rail.mbit_per_s > 0) text += format(", %g Gbit/s", rail.mbit_per_s / 1000.0);
    if (rail.mtu_bytes > 0) text += format(", MTU %u", rail.mtu_bytes);
    text += "\n";
  }
  if (!host.why_no_rdma.empty()) text += "  no RDMA: " + host.why_no_rdma + "\n";
  return text;
}

}  // namespace

void judge(NetReport& report) {
  std::map<std::pair<std::string, uint32_t>, std::pair<double, double>> best;  // bandwidth, latency
  for (const NetPair& pair : report.pairs) {
    if (!pair.figures.failure.empty()) continue;
    auto& [bandwidth, latency] = best.try_emplace(kind_of(pair), 0.0, pair.figures.latency_us).first->second;
    bandwidth = std::max(bandwidth, slower_direction(pair.figures));
    latency = std::min(latency, pair.figures.latency_us);
  }
  for (NetPair& pair : report.pairs) {
    const auto& [bandwidth, latency] = best[kind_of(pair)];
    judge_one(pair, bandwidth, latency);
  }
}

bool has_failure(const NetReport& report) {
  return std::ranges::any_of(report.pairs, [](const NetPair& pair) { return !pair.figures.failure.empty(); });
}

std::string show_net(const NetReport& report) {
  std::string text;
  for (const NetHost& host : report.hosts) text += host_text(host);
  if (report.hosts.size() < 2) return text + "all ranks are on one host: nothing to try\n";
  text += "\nlatency of 8 bytes; bandwidth there, and back\n";
  size_t failures = 0;
  for (const NetPair& pair : report.pairs) {
    const NetFigures& found = pair.figures;
    const std::string ends =
        end_text(report, pair.host_a, pair.rail_a) + " - " + end_text(report, pair.host_b, pair.rail_b);
    text += format("%-4s %-36s ", pair.rail_a.transport.c_str(), ends.c_str());
    if (found.failure.empty()) {
      text += format("%8.1f us  %10s  %10s\n", found.latency_us, speed(found.there_bytes_per_s).c_str(),
                     speed(found.back_bytes_per_s).c_str());
    } else {
      ++failures;
      text += "FAILED: " + found.failure + "\n";
    }
    for (const std::string& remark : pair.remarks) text += "     " + remark + "\n";
  }
  return text + format("%zu of %zu pairs work\n", report.pairs.size() - failures, report.pairs.size());
}

std::string show_net_json(const NetReport& report) {
  Json root = {{"hosts", report.hosts}, {"pairs", Json::array()}};
  for (const NetPair& pair : report.pairs) {
    Json json = pair.figures;
    const auto end = [&](size_t host, const NetRail& rail) {
      return Json{{"rank", report.hosts.at(host).rank}, {"rail", rail.name}};
    };
    json["transport"] = pair.rail_a.transport;
    json["a"] = end(pair.host_a, pair.rail_a);
    json["b"] = end(pair.host_b, pair.rail_b);
    json["remarks"] = pair.remarks;
    root["pairs"].push_back(std::move(json));
  }
  return root.dump(2) + "\n";
}

void to_json(Json& json, const NetRail& rail) {
  json = {{"transport", rail.transport},
          {"name", rail.name},
          {"address", rail.address},
          {"mbit_per_s", rail.mbit_per_s},
          {"mtu_bytes", rail.mtu_bytes}};
}

void from_json(const Json& json, NetRail& rail) {
  rail = {.transport = json.at("transport"),
          .name = json.at("name"),
          .address = json.at("address"),
          .mbit_per_s = json.at("mbit_per_s"),
          .mtu_bytes = json.at("mtu_bytes")};
}

void to_json(Json& json, const NetHost& host) {
  json = {{"rank", host.rank}, {"name", host.name}, {"why_no_rdma", host.why_no_rdma}, {"rails", host.rails}};
}

void from_json(const Json& json, NetHost& host) {
  host = {.rank = json.at("rank"),
          .name = json.at("name"),
          .rails = json.at("rails").get<std::vector<NetRail>>(),
          .why_no_rdma = json.at("why_no_rdma")};
}

void to_json(Json& json, const NetFigures& figures) {
  json = {{"latency_us", figures.latency_us},
          {"there_bytes_per_s", figures.there_bytes_per_s},
          {"back_bytes_per_s", figures.back_bytes_per_s},
          {"failure", figures.failure}};
}

void from_json(const Json& json, NetFigures& figures) {
  figures = {.latency_us = json.at("latency_us"),
             .there_bytes_per_s = json.at("there_bytes_per_s"),
             .back_bytes_per_s = json.at("back_bytes_per_s"),
             .failure = json.at("failure")};
}

void to_json(Json& json, const NetPair& pair) {
  json = {{"host_a", pair.host_a}, {"rail_a", pair.rail_a}, {"host_b", pair.host_b}, {"rail_b", pair.rail_b}};
  json["figures"] = pair.figures;
}

void from_json(const Json& json, NetPair& pair) {
  pair = {.host_a = json.at("host_a"),
          .rail_a = json.at("rail_a").get<NetRail>(),
          .host_b = json.at("host_b"),
          .rail_b = json.at("rail_b").get<NetRail>(),
          .figures = json.at("figures").get<NetFigures>(),
          .remarks = {}};
}

}  // namespace tutti::tool
