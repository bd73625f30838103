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
  TUTTI_TRY(job->route(std::move(graph), topology::RanksAre::kCores));
  auto placement = topology::place_ranks(*job->routes_, host_of, cpus);
  TUTTI_TRY(placement.status());
  job->take(std::move(*placement));
  costs.measured = job->graph_->slices();
  job->about_ = job->about_graph(source + (costs.is_measured() ? ", costs of slices measured" : ""));
  job->set_prices(costs);
  return job;
}

Result<std::shared_ptr<JobTopology>> JobTopology::of_devices(topology::Graph graph, const std::string& source,
                                                             std::span<const std::string> pci_addresses,
                                                             const char* why_no_prices) {
  std::shared_ptr<JobTopology> job(new JobTopology);
  TUTTI_TRY(job->route(std::move(graph), topology::RanksAre::kGpus));
  auto placement = topology::place_devices(*job->routes_, pci_addresses);
  TUTTI_TRY(placement.status());
  job->take(std::move(*placement));
  const size_t rings = std::max<size_t>(1, job->order().size() / pci_addresses.size());
  job->about_ = (why_no_prices != nullptr ? why_no_prices : job->about_graph(source)) +
                format("; rings follow the links between the devices (%zu)", rings);
  if (why_no_prices == nullptr) job->set_prices(topology::usual_costs(true));
  return job;
}

Status JobTopology::route(topology::Graph graph, topology::RanksAre ranks) {
  graph_ = std::make_unique<topology::Graph>(std::move(graph));
  auto routes = topology::Routes::of(*graph_, ranks);
  TUTTI_TRY(routes.status());
  routes_ = std::make_unique<topology::Routes>(std::move(*routes));
  return Status::ok();
}

void JobTopology::take(topology::Placement placement) {
  placement_ = std::move(placement);
  digest_ = graph_->digest();
  add_placement_to_digest();
}

std::string JobTopology::about_graph(const std::string& source) const {
  return format("a graph of %zu host%s and %zu parts (%s)", routes_->hosts().size(),
                routes_->hosts().size() == 1 ? "" : "s", graph_->nodes().size(), source.c_str());
}

void JobTopology::set_prices(const topology::RankCosts& costs) {
  // Without places equal hosts fold, so that one stands for all (topology/simulate.h).
  const bool can_fold = routes_->keep_ranks(placement_.places);
  const std::span<const uint32_t> places = placement_.places;
  prices_.emplace(PricedMachine{
      .routes = *routes_, .costs = costs, .places = can_fold ? std::span<const uint32_t>() : places});
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

const PricedRow* JobTopology::choose(const Request& request, const Facts& facts, const Way& by_table,
                                     uint64_t packet_bytes_max) {
  const std::scoped_lock lock(mutex_);
  return prices_ ? &prices_->choose(request, facts, by_table, packet_bytes_max) : nullptr;
}

std::string JobTopology::print_choices() {
  const std::scoped_lock lock(mutex_);
  return prices_ ? prices_->print() : std::string();
}

}  // namespace tutti
