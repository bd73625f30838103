// JobTopology: what is connected to what, as all ranks of a communicator know it: an order of the ranks,
// levels of near ranks, and choices by price. Made once for each communicator and process: its ranks share
// the object.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithms/choice.h"
#include "algorithms/priced_choice.h"
#include "core/cpu.h"
#include "core/hash.h"
#include "topology/graph.h"
#include "topology/placement.h"
#include "topology/rank_costs.h"

namespace tutti {

class JobTopology {
 public:
  /// Without a graph nothing is known but the hosts. `why`: for people.
  JobTopology(std::span<const uint32_t> host_of, std::string why);
  /// `source`: for people. Costs of slices are the graph's. Errors: kInvalidArgument if the ranks do not fit
  /// the graph.
  static Result<std::shared_ptr<JobTopology>> of(topology::Graph graph, const std::string& source,
                                                 std::span<const uint32_t> host_of,
                                                 std::span<const CpuSet> cpus, topology::RankCosts costs);
  /// Ranks on devices of one host, by their PCI addresses. `why_no_prices`: null if there are prices. Errors:
  /// kInvalidArgument: of Routes::of and place_devices.
  static Result<std::shared_ptr<JobTopology>> of_devices(topology::Graph graph, const std::string& source,
                                                         std::span<const std::string> pci_addresses,
                                                         const char* why_no_prices);
  JobTopology(const JobTopology&) = delete;
  JobTopology& operator=(const JobTopology&) = delete;

  /// As Facts::order and Facts::levels.
  std::span<const uint32_t> order() const { return placement_.order; }
  std::span<const std::vector<uint32_t>> levels() const { return placement_.levels; }

  /// Measured rows of rank 0's machine, before the rows of the process's choice table.
  void add_tuned(const ChoiceTable& tuned, const ChoiceTable& table);
  uint32_t tuned_rows() const { return tuned_rows_; }
  /// Null: the process's choice table.
  const ChoiceTable* choice() const { return choice_ ? &*choice_ : nullptr; }
  /// Whether calls on devices (false: on cores) have prices.
  bool has_prices(bool on_devices) const {
    return prices_ && prices_->machine().costs.on_gpu() == on_devices;
  }

  /// As PricedChoice::choose. Null if no prices are known. Any thread.
  const PricedRow* choose(const Request& request, const Facts& facts, const Way& by_table,
                          uint64_t packet_bytes_max = 0);

  /// Equal on all ranks.
  uint64_t digest() const { return digest_; }
  /// "a graph of 2 hosts and 14 parts (detected)", or why there is none.
  const std::string& about() const { return about_; }
  /// All rows that were chosen by price so far, as lines of a table.
  std::string print_choices();

 private:
  JobTopology() = default;
  Status route(topology::Graph graph, topology::RanksAre ranks);
  void take(topology::Placement placement);
  std::string about_graph(const std::string& source) const;
  void set_prices(const topology::RankCosts& costs);
  void add_placement_to_digest();

  std::string about_;
  uint64_t digest_ = kHashSeed;
  std::optional<ChoiceTable> choice_;
  uint32_t tuned_rows_ = 0;
  topology::Placement placement_;
  std::unique_ptr<topology::Graph> graph_;  ///< at a fixed place, because the routes borrow it
  std::unique_ptr<topology::Routes> routes_;
  std::mutex mutex_;  ///< guards the routes and prices_
  std::optional<PricedChoice> prices_;
};

}  // namespace tutti
