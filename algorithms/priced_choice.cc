#include "algorithms/priced_choice.h"

#include <algorithm>
#include <bit>

#include "plan/packets.h"
#include "plan/verify.h"

namespace tutti {
namespace {

/// The other algorithm must be predicted to take less than the table's over this.
constexpr double kWorthAChange = 1.10;
/// A candidate that takes so many times the best time is only known to take longer.
constexpr double kHopeless = 3;
/// Steps and slices that a candidate's walk may have, so that a decision takes less than a second and 100 MiB
/// (build/topology_bench). A walk of many ranks takes up to 4 KiB a step.
constexpr uint64_t kStepsMax = uint64_t{1} << 17;
constexpr uint64_t kStepsTimesRanks = uint64_t{1} << 26;
constexpr uint64_t kSlicesMax = uint64_t{1} << 16;
/// Of calls that follow each other: a few milliseconds for a candidate.
constexpr uint64_t kRepeatedSlices = uint64_t{1} << 13;
/// Plans of so many steps on all ranks are proved again here, for this order of ranks: a few milliseconds.
/// For more, the proofs of the tests must do (1 to 64 ranks, orders and groups of all kinds).
constexpr uint64_t kProvedSteps = 512;

/// Messages of a class have from 2^(class - 1) to 2^class - 1 bytes.
uint32_t class_of(const Request& request) {
  return static_cast<uint32_t>(std::bit_width(message_bytes(request)));
}

uint64_t least_bytes(uint32_t size_class) {
  return size_class == 0 ? 0 : uint64_t{1} << (size_class - 1);
}

bool is_proved(const Request& request, const Facts& facts, const Algorithm& algorithm) {
  std::vector<Plan> plans;
  uint64_t steps = 0;
  for (uint32_t rank = 0; rank < request.rank_count; ++rank) {
    plans.push_back(algorithm.make(request, facts, rank));
    for (const Lane& lane : plans.back().lanes) steps += lane.steps.size();
    if (steps * request.rank_count / (rank + 1) > kProvedSteps) return true;
  }
  return verify_plans(plans, {.in_place = request.in_place, .variable_counts = request.variable_counts})
      .is_ok();
}

ChoiceRow row_of(const Request& request, uint32_t size_class, const Way& way) {
  return {.collective = request.collective,
          .ranks_min = request.rank_count,
          .ranks_max = request.rank_count,
          .bytes_min = least_bytes(size_class),
          .bytes_max = size_class >= 64 ? UINT64_MAX : (uint64_t{1} << size_class) - 1,
          .condition = way.by_packets ? ChoiceRow::Condition::kShort : ChoiceRow::Condition::kAny,
          .algorithm = std::string(way.algorithm->name),
          .is_estimate = true};
}

/// "  # 6.70 us for float32 sum, ring 8.00 us".
std::string comment_on(const PricedRow& row) {
  std::string text = format("  # %.2f us", row.price_us);
  if (reduces(row.row.collective))
    text += " for " + std::string(type_name(row.type)) + " " + std::string(op_name(row.op));
  if (row.way != row.by_table) text += format(", %s %.2f us", name_of(row.by_table).c_str(), row.by_table_us);
  return text;
}

double time_of(const Candidate& candidate) {
  return candidate.simulation.microseconds;
}

}  // namespace

TableChoice choose_by_table(const ChoiceTable& table, const Request& request, const Facts& facts,
                            uint64_t packet_bytes_max) {
  TableChoice choice;
  choice.way.algorithm = table.choose(request, facts, &choice.row, packet_bytes_max);
  if (choice.row >= table.rows().size()) return choice;
  const ChoiceRow& row = table.rows()[choice.row];
  choice.way.by_packets = row.condition == ChoiceRow::Condition::kShort;
  choice.is_estimate = row.is_estimate;
  return choice;
}

const PricedRow& PricedChoice::choose(const Request& request, const Facts& facts, Way by_table,
                                      uint64_t packet_bytes_max) {
  const uint32_t size_class = class_of(request);
  const uint32_t root = has_root(request.collective) ? request.root : 0;
  std::vector<Way> ways = ways_of(request, facts, packet_bytes_max);
  // The table wants packets, but the plan does not suit them.
  if (std::ranges::find(ways, by_table) == ways.end()) by_table.by_packets = false;
  const bool has_packets = std::ranges::any_of(ways, &Way::by_packets);
  const uint32_t packet_data =
      has_packets ? data_of_packet(reduces(request.collective), type_bytes(request.type)) : 0;
  Key key{request.collective,
          size_class,
          root,
          request.reproducible,
          request.variable_counts,
          request.in_place,
          by_table,
          std::move(ways),
          packet_data};
  const auto known = rows_.find(key);
  if (known != rows_.end()) return known->second;
  PricedRow row = decide(request, facts, by_table, std::get<std::vector<Way>>(key), size_class);
  return rows_.emplace(std::move(key), std::move(row)).first->second;
}

PricedRow PricedChoice::decide(Request request, const Facts& facts, const Way& by_table,
                               std::span<const Way> ways, uint32_t size_class) const {
  PricedRow result{.row = row_of(request, size_class, by_table),
                   .type = request.type,
                   .op = request.op,
                   .way = by_table,
                   .by_table = by_table};
  if (facts.can_multicast && machine_.routes.graph().of_kind(topology::NodeKind::kNvswitch).empty()) {
    // A price knows what a switch reduces and stores to all, as long as the graph has that switch
    // (topology/walk.cc). Without it (NVML is missing) the graph's links are not those that bytes take, so
    // the table's row, by multicast or not, is better than such prices.
    result.no_price = "the graph does not have the switch that multicasts";
    return result;
  }
  // The middle of the class, so that the decision does not depend on which of its sizes came first.
  const uint64_t least = least_bytes(size_class);
  request.block_bytes = block_bytes_of(request.collective, request.rank_count, least + least / 2);
  const auto candidates = predict(machine_, facts, request,
                                  {.ways = ways,
                                   .first = by_table,
                                   .hopeless = kHopeless,
                                   .repeated_slices = kRepeatedSlices,
                                   .steps_max = std::min(kStepsMax, kStepsTimesRanks / request.rank_count),
                                   .slices_max = kSlicesMax});
  if (!candidates) {
    result.no_price = std::string(candidates.status().text());
    return result;
  }
  const auto table = std::ranges::find(*candidates, by_table, &Candidate::way);
  const Candidate* winner = table == candidates->end() ? nullptr : &*table;
  if (winner != nullptr) result.by_table_us = time_of(*winner);
  const bool knows_table = winner != nullptr && !winner->simulation.is_lower_bound;
  for (const Candidate& candidate : *candidates) {
    // Against a price that is only a lower bound nothing is known to be faster.
    const bool is_faster = knows_table && !candidate.simulation.is_lower_bound &&
                           time_of(candidate) * kWorthAChange < time_of(*winner);
    if (!is_faster) break;
    if (!is_proved(request, facts, *candidate.way.algorithm)) continue;
    winner = &candidate;
    break;
  }
  if (!knows_table) return result;
  result.way = winner->way;
  result.price_us = time_of(*winner);
  result.row = row_of(request, size_class, winner->way);
  if (!winner->simulation.busiest.empty()) result.limit = winner->simulation.busiest[0].what;
  for (const Candidate& candidate : *candidates) {
    if (candidate.way == winner->way) continue;
    if (result.next.algorithm == nullptr || time_of(candidate) < result.next_us) {
      result.next = candidate.way;
      result.next_us = time_of(candidate);
    }
  }
  return result;
}

std::string PricedChoice::print() const {
  std::string out;
  // Rows of packets come first: they hold only for sizes that packets can carry.
  for (const bool by_packets : {true, false}) {
    for (const auto& [key, row] : rows_) {
      if (row.way.by_packets != by_packets) continue;
      out += print_row(row.row);
      if (row.price_us > 0) out += comment_on(row);
      out += "\n";
    }
  }
  return out;
}

}  // namespace tutti
