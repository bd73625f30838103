// Machine: a topology file or description, with what tools need to predict collectives on it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "algorithms/predict.h"
#include "algorithms/priced_choice.h"
#include "core/result.h"
#include "tools/corrections.h"
#include "topology/graph.h"
#include "topology/placement.h"
#include "topology/routes.h"

namespace tutti::tool {

/// Slices that are walked of calls that follow each other without a pause, as the perf tools call.
inline constexpr uint64_t kRepeatedSlices = uint64_t{1} << 15;

class Machine {
 public:
  /// One of the two must be given. Errors: of topology::read_topology and Routes::of.
  static Result<Machine> load(const std::string& file, const std::string& description);
  /// Errors: of Routes::of.
  static Result<Machine> of(topology::Graph graph, topology::RanksAre ranks = topology::RanksAre::kGpus);

  /// From now on the switch between the GPUs of a host reduces what it loads, and stores to all.
  void set_multicast() { has_multicast_ = true; }

  topology::Routes& routes() { return *routes_; }
  const topology::Graph& graph() const { return *graph_; }
  const topology::RankCosts& costs() const { return costs_; }
  /// The same with the slots that a communicator of so many ranks has.
  topology::RankCosts costs(uint32_t rank_count, uint32_t emulated_hosts = 1) const;
  bool on_gpus() const { return costs_.on_gpu(); }
  /// The most that a rank can send another in packets. 0: ranks send none.
  uint64_t packet_bytes_max(const Request& request) const;
  uint32_t rank_count() const { return static_cast<uint32_t>(routes_->ranks().size()); }
  uint32_t host_count(uint32_t rank_count) const;
  Corrections& corrections() { return corrections_; }
  /// Of the machine's first ranks, each bound to its place; more ranks than cores are not bound. The result
  /// borrows from this machine. Of ranks on cores of one host, which may take parts of it for hosts of their
  /// own.
  Facts facts(uint32_t rank_count, uint32_t emulated_hosts = 1);

 private:
  Machine() = default;
  topology::Placement arrange(std::vector<uint32_t> places) const;

  std::unique_ptr<topology::Graph> graph_;  // at a fixed place, because the routes borrow it
  std::unique_ptr<topology::Routes> routes_;
  std::map<uint32_t, topology::Placement> placements_;                               // by the number of ranks
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> emulated_host_of_;  // by ranks and hosts
  topology::RankCosts costs_;
  bool has_multicast_ = false;
  Corrections corrections_{{}};
};

/// The predicted times of the request on the machine's first ranks, corrected by trials. As tutti::predict.
Result<std::vector<Candidate>> predict(Machine& machine, const Request& request,
                                       const PredictOptions& options = {}, uint32_t emulated_hosts = 1);

/// What the library takes for a request on the machine's first ranks.
struct LibraryChoice {
  TableChoice by_table;  ///< of the built-in table
  bool by_price = false;
  Way way = {};  ///< as by_table, unless by_price
};

/// As Communicator::choose, for ranks on GPUs of one host. Of other ranks only what the table says.
LibraryChoice choice_of_library(Machine& machine, const Request& request);

/// Bus bandwidth over algorithm bandwidth, as nccl-tests define it.
double bus_factor(Collective collective, uint32_t rank_count);

/// "64K", "1.5M": powers of 1024.
std::string short_bytes(uint64_t bytes);
/// "3.21 us", "1.2 ms".
std::string short_time(double microseconds);

}  // namespace tutti::tool
