#include "comm/agree_topology.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "core/hash.h"
#include "core/log.h"
#include "topology/job.h"
#include "topology/pci.h"
#include "topology/text.h"

namespace tutti {
namespace {

/// Of all texts together in one exchange. The limit is kBlobsBytesMax; the rest is for lengths.
constexpr size_t kExchangeBytes = size_t{4} << 20;
/// One host's ranks up to this number are served by measured rows of the built-in table.
constexpr uint32_t kMeasuredRanks = 8;

/// What a rank says of its text before it travels.
struct Announcement {
  uint64_t digest = 0;
  uint64_t bytes = 0;
  std::array<char, 112> note{};
};

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

uint64_t digest_of(std::string_view text) {
  return hash_bytes(text.data(), text.size());
}

/// Hosts of one machine are emulated: they share its cores, and no network joins them.
bool has_emulated_hosts(const std::vector<RankFacts>& facts, const TopologyOptions& options) {
  std::map<uint64_t, uint32_t> host_of_machine;
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    const auto [known, is_new] = host_of_machine.try_emplace(facts[rank].machine, options.host_of[rank]);
    if (!is_new && known->second != options.host_of[rank]) return true;
  }
  return false;
}

uint32_t most_ranks_of_a_host(const TopologyOptions& options) {
  std::vector<uint32_t> ranks(options.host_count, 0);
  for (const uint32_t host : options.host_of) ++ranks[host];
  return *std::ranges::max_element(ranks);
}

/// The topologies that some rank of this process holds, by the id of their communicator.
struct SharedTopologies {
  std::mutex mutex;
  std::map<BootstrapTag, std::weak_ptr<JobTopology>> topologies;
};

SharedTopologies& shared_topologies() {
  static auto* const kTopologies = new SharedTopologies;  // threads may outlive static objects
  return *kTopologies;
}

/// What this rank tells of its host, and of rank 0's table.
struct OwnTexts {
  std::string graph;
  std::string note;
};

OwnTexts own_texts(Process& process, bool is_leader) {
  OwnTexts own;
  if (!is_leader) return own;
  const auto machine = process.find_machine();
  if (!machine) {
    own.note = std::string(machine.status().text());
    log_line("no graph of this host, so no algorithm is chosen by its price: " + own.note);
    return own;
  }
  // No decision depends on the times of calls.
  topology::GraphBuilder graph(machine->graph);
  graph.calls().clear();
  own.graph = topology::print_graph(std::move(graph).finish());
  own.note = machine->source;
  return own;
}

/// The graph of all hosts from what their lowest ranks have told.
Result<topology::Graph> join(const TextExchange::Received& received, const TopologyOptions& options) {
  // A file of rank 0 with several hosts describes the job.
  const uint32_t first = received.text_of[0];
  if (options.host_count > 1 && first != TextExchange::kNone) {
    auto graph = topology::parse_graph(received.texts.at(first));
    TUTTI_TRY(graph.status());
    if (graph->of_kind(topology::NodeKind::kHost).size() > 1) return graph;
  }
  topology::JobTexts texts;
  std::vector<uint32_t> leader(options.host_count, TextExchange::kNone);
  for (uint32_t rank = 0; rank < options.host_of.size(); ++rank) {
    if (leader[options.host_of[rank]] == TextExchange::kNone) leader[options.host_of[rank]] = rank;
  }
  for (uint32_t host = 0; host < options.host_count; ++host) {
    const uint32_t text = received.text_of[leader[host]];
    if (text == TextExchange::kNone) {
      return Status(Code::kUnsupported, format("rank %u has no graph of its host: %s", leader[host],
                                               received.notes[leader[host]].c_str()));
    }
    texts.add_host(received.texts.at(text));
  }
  return topology::join_hosts(texts);
}

std::shared_ptr<JobTopology> build(const TextExchange::Received& received,
                                   const std::vector<RankFacts>& facts, const TopologyOptions& options) {
  auto graph = join(received, options);
  Status why = graph.status();
  if (graph) {
    std::vector<CpuSet> cpus;
    for (const RankFacts& theirs : facts) cpus.push_back(theirs.core_cpus());
    auto job = JobTopology::of(std::move(*graph), received.notes[0], options.host_of, cpus, options.costs);
    if (job) return *job;
    why = job.status();
  }
  return std::make_shared<JobTopology>(options.host_of, "no graph: " + std::string(why.text()));
}

/// Without a usable graph, ranks on devices stand in their order. `why_no_prices`: may be null.
std::shared_ptr<JobTopology> build_devices(const TextExchange::Received& received,
                                           const std::vector<RankFacts>& facts,
                                           const TopologyOptions& options, const char* why_no_prices) {
  const uint32_t text = received.text_of[0];
  Status refused(Code::kUnsupported, received.notes[0]);
  if (text != TextExchange::kNone) {
    auto graph = topology::parse_graph(received.texts.at(text));
    refused = graph.status();
    if (graph) {
      std::vector<std::string> addresses;
      for (const RankFacts& theirs : facts) addresses.push_back(topology::pci_address(theirs.device.bus()));
      auto job = JobTopology::of_devices(std::move(*graph), received.notes[0], addresses, why_no_prices);
      if (job) return *job;
      refused = job.status();
    }
  }
  const std::string why = why_no_prices == nullptr ? "" : std::string(why_no_prices) + ", and ";
  return std::make_shared<JobTopology>(options.host_of,
                                       why + "no graph of the devices: " + std::string(refused.text()));
}

/// Rank 0's measured rows, before the process's own table.
Status add_tuned(const TextExchange::Received& received, const ChoiceTable& table, JobTopology& job) {
  if (received.text_of[0] == TextExchange::kNone) return Status::ok();
  auto tuned = ChoiceTable::parse(received.texts.at(received.text_of[0]));
  TUTTI_TRY(tuned.status());
  job.add_tuned(*tuned, table);
  return Status::ok();
}

}  // namespace

Result<TextExchange::Received> TextExchange::run(const Share& share, uint32_t rank, std::string_view text,
                                                 std::string_view note) {
  std::string too_long;
  if (text.size() > kTextBytesMax) {
    too_long = format("its text has %zu bytes, %zu are the most", text.size(), kTextBytesMax);
    log_line("a text for the other ranks is left out: " + too_long);
    note = too_long;
    text = {};
  }
  Announcement own{.digest = digest_of(text), .bytes = text.size()};
  note.copy(own.note.data(), own.note.size() - 1);
  const bool says_something = !text.empty() || !note.empty();
  const auto announced =
      share(says_something ? std::as_bytes(std::span(&own, 1)) : std::span<const std::byte>());
  TUTTI_TRY(announced.status());
  Received received;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> owners;
  for (uint32_t peer = 0; peer < announced->size(); ++peer) {
    Announcement theirs;
    const auto& blob = (*announced)[peer];
    std::memcpy(&theirs, blob.data(), std::min(blob.size(), sizeof theirs));
    theirs.note.back() = '\0';
    received.notes.emplace_back(theirs.note.data());
    received.text_of.push_back(kNone);
    if (theirs.bytes == 0 || theirs.bytes > kTextBytesMax) continue;
    received.text_of.back() = owners.try_emplace({theirs.digest, theirs.bytes}, peer).first->second;
  }
  if (owners.empty()) return received;
  const size_t piece = std::max<size_t>(1, kExchangeBytes / owners.size());
  uint64_t longest = 0;
  for (const auto& [announcement, owner] : owners) longest = std::max(longest, announcement.second);
  for (uint64_t done = 0; done < longest; done += piece) {
    const bool sends = received.text_of[rank] == rank && done < text.size();
    const auto pieces = share(as_bytes(sends ? text.substr(done, piece) : std::string_view()));
    TUTTI_TRY(pieces.status());
    for (const auto& [announcement, owner] : owners) {
      const auto& blob = (*pieces)[owner];
      received.texts[owner].append(reinterpret_cast<const char*>(blob.data()), blob.size());
    }
  }
  for (const auto& [announcement, owner] : owners) {
    const std::string& whole = received.texts[owner];
    if (whole.size() != announcement.second || digest_of(whole) != announcement.first)
      return Status(Code::kMismatch, format("the topology of rank %u arrived changed", owner));
  }
  return received;
}

const char* why_no_prices(const std::vector<RankFacts>& facts, const TopologyOptions& options,
                          const Config& config, const ChoiceTable& table) {
  if (!config.prices) return "TUTTI_PRICES is 0";
  if (std::ranges::none_of(table.rows(), &ChoiceRow::is_estimate)) return "the choice table has no estimates";
  const auto is_on_device = [](const RankFacts& theirs) { return theirs.device.is_device != 0; };
  if (std::ranges::any_of(facts, is_on_device)) {
    return have_device_links(facts, options)
               ? nullptr
               : "on devices there are prices for ranks of one host, each on a device of its own";
  }
  if (facts[0].names_topology != 0) return nullptr;
  if (options.host_count == 1 && facts.size() <= kMeasuredRanks)
    return "the table was measured for so few ranks of one host";
  // With 12 ranks on 2 cores the choice by price took 51 % longer than the fastest, the table's 27 %
  // (docs/measurements/predicted.md).
  if (most_ranks_of_a_host(options) > options.cores) return "there are more ranks than cores";
  if (has_emulated_hosts(facts, options)) return "some hosts are parts of one machine";
  return nullptr;
}

bool have_device_links(const std::vector<RankFacts>& facts, const TopologyOptions& options) {
  // Ranks that share a device have no links between them.
  std::set<std::string_view> addresses;
  for (const RankFacts& theirs : facts) {
    if (theirs.device.is_device == 0 || theirs.device.bus().empty()) return false;
    addresses.insert(theirs.device.bus());
  }
  return options.host_count == 1 && facts.size() > 1 && addresses.size() == facts.size();
}

Result<std::shared_ptr<JobTopology>> agree_on_topology(Bootstrap& bootstrap, Process& process,
                                                       const std::vector<RankFacts>& facts,
                                                       const TopologyOptions& options) {
  const auto share = [&](std::span<const std::byte> blob) { return bootstrap.share(blob); };
  const char* const why = why_no_prices(facts, options, process.config(), process.choice());
  const auto leader = std::ranges::find(options.host_of, options.host_of[options.rank]);
  const bool is_leader = static_cast<uint32_t>(leader - options.host_of.begin()) == options.rank;
  const bool on_devices = have_device_links(facts, options);
  TextExchange::Received graphs;
  if (why == nullptr || on_devices) {
    const OwnTexts own = own_texts(process, is_leader);
    auto received = TextExchange::run(share, options.rank, own.graph, own.note);
    TUTTI_TRY(received.status());
    graphs = std::move(*received);
  }
  // Ranks whose processes have rank 0's table need not be told.
  TextExchange::Received tables;
  const uint64_t tuned = facts[0].tuned;
  const bool tells_table =
      std::ranges::any_of(facts, [tuned](const RankFacts& theirs) { return theirs.tuned != tuned; });
  if (tuned != 0 && tells_table) {
    auto received =
        TextExchange::run(share, options.rank, options.rank == 0 ? process.tuned_text() : std::string(), "");
    TUTTI_TRY(received.status());
    tables = std::move(*received);
  } else if (tuned != 0) {
    tables.text_of.assign(1, 0);
    tables.texts[0] = process.tuned_text();
  } else {
    tables.text_of.assign(1, TextExchange::kNone);
  }
  SharedTopologies& shared = shared_topologies();
  const std::scoped_lock lock(shared.mutex);
  std::erase_if(shared.topologies, [](const auto& entry) { return entry.second.expired(); });
  auto& known = shared.topologies[bootstrap.id().nonce];
  if (auto job = known.lock()) return job;
  auto job = on_devices       ? build_devices(graphs, facts, options, why)
             : why == nullptr ? build(graphs, facts, options)
                              : std::make_shared<JobTopology>(options.host_of, why);
  TUTTI_TRY(add_tuned(tables, process.choice(), *job));
  known = job;
  return job;
}

}  // namespace tutti
