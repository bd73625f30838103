// Agreement on the topology: the lowest rank of each host tells all ranks its host's graph, and rank 0 its
// measured table of choices. Equal texts travel once, long ones in pieces. All ranks then build the same
// JobTopology. Ranks that need no graph, such as a few ranks of one host, which the built-in table serves,
// tell each other nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/job_topology.h"
#include "comm/process.h"
#include "comm/rank_facts.h"

namespace tutti {

struct TopologyOptions {
  uint32_t rank = 0;
  std::span<const uint32_t> host_of;  ///< of each rank; hosts are numbered by their lowest ranks
  uint32_t host_count = 1;
  uint32_t cores = 1;  ///< of the host with the fewest
  topology::RankCosts costs = {};
};

/// What must be known before: rank facts, compared. Errors: as Bootstrap::share; kMismatch.
Result<std::shared_ptr<JobTopology>> agree_on_topology(Bootstrap& bootstrap, Process& process,
                                                       const std::vector<RankFacts>& facts,
                                                       const TopologyOptions& options);

/// Why the ranks have no prices; null if they need a graph for them. Depends only on what all ranks know.
const char* why_no_prices(const std::vector<RankFacts>& facts, const TopologyOptions& options,
                          const Config& config, const ChoiceTable& table);

/// Whether the ranks are on devices of one host, each on its own: links join them, which rings follow even
/// without prices. Depends only on what all ranks know.
bool have_device_links(const std::vector<RankFacts>& facts, const TopologyOptions& options);

/// How texts of several ranks travel: each exchange carries the next piece of each text.
class TextExchange {
 public:
  /// Sends a blob to all ranks, and returns all blobs.
  using Share = std::function<Result<Blobs>(std::span<const std::byte> blob)>;
  struct Received {
    /// Of each rank that has one; equal texts are stored once, with the lowest rank that has it.
    std::map<uint32_t, std::string> texts;
    std::vector<uint32_t> text_of;   ///< the rank in `texts`; kNone: the rank has no text
    std::vector<std::string> notes;  ///< of each rank
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kTextBytesMax = size_t{8} << 20;

  /// `text`: this rank's; empty: none. `note`: a short line. Errors: as `share`; kMismatch: a text that is
  /// not what its rank has announced.
  static Result<Received> run(const Share& share, uint32_t rank, std::string_view text,
                              std::string_view note);
};

}  // namespace tutti
