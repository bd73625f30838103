#include "tools/tutti_topo/job.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/agree_topology.h"
#include "core/clock.h"
#include "net/locality.h"
#include "topology/job.h"
#include "topology/text.h"
#include "tutti/tutti.h"

namespace tutti::tool {
namespace {

/// What a rank says of itself.
struct Presence {
  uint64_t host = 0;
  std::array<char, 64> host_name{};
};

Presence own_presence(const Config& config) {
  Presence own{.host = find_locality(config.host_id).host};
  if (gethostname(own.host_name.data(), own.host_name.size() - 1) != 0) own.host_name = {'h', 'o', 's', 't'};
  return own;
}

Result<UniqueId> share_id(const LaunchContext& context) {
  tutti_unique_id_t id{};
  tutti_result_t done = TUTTI_SUCCESS;
  if (context.rank == 0) done = tutti_get_unique_id(&id);
  if (done == TUTTI_SUCCESS) {
    done = tutti_share_unique_id(&id, "launcher", static_cast<int>(context.rank),
                                 static_cast<int>(context.rank_count), 0);
  }
  if (done != TUTTI_SUCCESS) return Status(static_cast<Code>(done), tutti_last_error());
  UniqueId result;
  static_assert(sizeof result == sizeof id);
  std::memcpy(static_cast<void*>(&result), &id, sizeof id);
  return result;
}

std::vector<Presence> read_presences(const Blobs& blobs) {
  std::vector<Presence> all(blobs.size());
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    const auto& blob = blobs[rank];
    std::memcpy(&all[rank], blob.data(), std::min(blob.size(), sizeof(Presence)));
    all[rank].host_name.back() = '\0';
  }
  return all;
}

/// "0 to 3, 8": ascending numbers.
std::string ranges_of(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[first]);
    if (last > first) text += " to " + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

/// A note for each host: its name and its ranks.
void add_host_notes(const std::vector<Presence>& all, const std::vector<uint32_t>& host_of,
                    std::vector<std::string>& notes) {
  std::map<uint32_t, std::vector<uint32_t>> ranks_of;
  for (uint32_t rank = 0; rank < host_of.size(); ++rank) ranks_of[host_of[rank]].push_back(rank);
  for (const auto& [host, ranks] : ranks_of) {
    notes.push_back(format("h%u is %s, with rank%s ", host, all[ranks[0]].host_name.data(),
                           ranks.size() == 1 ? "" : "s") +
                    ranges_of(ranks));
  }
}

Result<topology::Imported> join(const TextExchange::Received& received, const std::vector<Presence>& all,
                                const std::vector<uint32_t>& host_of) {
  topology::JobTexts texts;
  topology::Imported job;
  std::set<std::string> notes;
  for (uint32_t rank = 0; rank < host_of.size(); ++rank) {
    if (host_of[rank] < texts.graph_of_host.size()) continue;
    const uint32_t text = received.text_of[rank];
    if (text == TextExchange::kNone)
      return Status(Code::kInvalidArgument, format("rank %u has told no graph of its host", rank));
    texts.add_host(received.texts.at(text));
    if (!received.notes[rank].empty()) notes.insert(received.notes[rank]);
  }
  auto graph = topology::join_hosts(texts);
  TUTTI_TRY(graph.status());
  job.graph = std::move(*graph);
  if (texts.graph_of_host.size() > 1) add_host_notes(all, host_of, job.notes);
  job.notes.insert(job.notes.end(), notes.begin(), notes.end());
  return job;
}

}  // namespace

Result<topology::Imported> join_job(const LaunchContext& context, const Config& config,
                                    const topology::Imported& own) {
  const auto id = share_id(context);
  TUTTI_TRY(id.status());
  auto bootstrap = Bootstrap::join({.id = *id,
                                    .rank_count = context.rank_count,
                                    .rank = context.rank,
                                    .deadline_ns = deadline_after_ms(config.setup_timeout_ms)},
                                   config);
  TUTTI_TRY(bootstrap.status());
  const Presence presence = own_presence(config);
  const auto introductions = bootstrap->introduce([&](const PackedEndpoints&) {
    const auto bytes = std::as_bytes(std::span(&presence, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
  TUTTI_TRY(introductions.status());
  const std::vector<Presence> all = read_presences(*introductions);
  std::vector<uint64_t> labels;
  for (const Presence& theirs : all) labels.push_back(theirs.host);
  const std::vector<uint32_t> host_of = number_hosts(labels);
  const auto leader = std::ranges::find(host_of, host_of[context.rank]) - host_of.begin();
  const bool is_leader = static_cast<uint32_t>(leader) == context.rank;
  const auto received =
      TextExchange::run([&](std::span<const std::byte> blob) { return bootstrap->share(blob); }, context.rank,
                        is_leader ? topology::print_graph(own.graph) : std::string(),
                        is_leader && !own.notes.empty() ? own.notes[0] : std::string());
  TUTTI_TRY(received.status());
  TUTTI_TRY(bootstrap->finish({}).status());
  (void)tutti_forget_file("launcher", static_cast<int>(context.rank));
  return join(*received, all, host_of);
}

}  // namespace tutti::tool
