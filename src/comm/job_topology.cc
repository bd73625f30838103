#include "comm/job_topology.h"

#include <algorithm>
#include <utility>

namespace tutti {

JobTopology::JobTopology(std::span<const uint32_t> host_of, std::string why) : about_(std::move(why)) {
  placement_.order = topology::order_by_hosts(host_of);
  add_placement_to_digest();
}

Result<std::shared_ptr<JobTopology>> JobTopology::of(topology::Graph graph, const std::string& source,
                                                     std::span<const uint32_t> host_of,
                                                     std::span<const CpuSet> cpus,
                                                     topology::RankCosts costs) {
  std::shared_ptr<JobTopology> job(new JobTopology);
  job->graph_ = std::make_unique<topology::Graph>(std::move(graph));
  auto routes = topology::Routes::of(*job->graph_, topology::RanksAre::kCores);
  TUTTI_TRY(routes.status());
  job->routes_ = std::make_unique<topology::Routes>(std::move(*routes));
  auto placement = topology::place_ranks(*job->routes_, host_of, cpus);
  TUTTI_TRY(placement.status());
  job->placement_ = std::move(*placement);
  job->digest_ = job->graph_->digest();
  job->add_placement_to_digest();
  costs.measured = job->graph_->slices();
  job->about_ = format("a graph of %zu host%s and %zu parts (%s%s)", job->routes_->hosts().size(),
                       job->routes_->hosts().size() == 1 ? "" : "s", job->graph_->nodes().size(),
                       source.c_str(), costs.is_measured() ? ", costs of slices measured" : "");
  // Without places equal hosts fold, so that one stands for all (topology/simulate.h).
  const bool can_fold = job->routes_->keep_ranks(job->placement_.places);
  const std::span<const uint32_t> places = job->placement_.places;
  job->prices_.emplace(PricedMachine{
      .routes = *job->routes_, .costs = costs, .places = can_fold ? std::span<const uint32_t>() : places});
  return job;
}

Result<std::shared_ptr<JobTopology>> JobTopology::of_devices(const topology::Graph& graph,
                                                             std::span<const std::string> pci_addresses) {
  auto placement = topology::place_devices(graph, pci_addresses);
  TUTTI_TRY(placement.status());
  std::shared_ptr<JobTopology> job(new JobTopology);
  job->placement_ = std::move(*placement);
  const size_t rings = std::max<size_t>(1, job->order().size() / pci_addresses.size());
  job->about_ =
      format("ranks on devices have no prices yet; rings follow the links between the devices (%zu)", rings);
  job->add_placement_to_digest();
  return job;
}

void JobTopology::add_tuned(const ChoiceTable& tuned, const ChoiceTable& table) {
  choice_ = table.behind(tuned);
  tuned_rows_ = static_cast<uint32_t>(tuned.rows().size());
}

void JobTopology::add_placement_to_digest() {
  const auto add = [&](std::span<const uint32_t> values) {
    digest_ = hash_bytes(values.data(), values.size_bytes(), digest_);
  };
  add(placement_.places);
  add(placement_.order);
  for (const auto& level : placement_.levels) add(level);
}

const PricedRow* JobTopology::choose(const Request& request, const Facts& facts, const Algorithm& by_table) {
  const std::scoped_lock lock(mutex_);
  return prices_ ? &prices_->choose(request, facts, by_table) : nullptr;
}

std::string JobTopology::print_choices() {
  const std::scoped_lock lock(mutex_);
  return prices_ ? prices_->print() : std::string();
}

}  // namespace tutti
