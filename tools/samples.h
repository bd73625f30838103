// Samples: measured times of algorithms, and the choice table that follows from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/choice.h"
#include "core/result.h"
#include "tools/paired_times.h"

namespace tutti::tool {

/// What was measured. A case is one algorithm of a collective on some ranks, and has several sizes.
struct Case {
  Collective collective = Collective::kAllReduce;
  uint32_t ranks = 0;
  uint32_t hosts = 1;
  std::string algorithm;  ///< kDefault: what the library chooses without measured rows

  friend auto operator<=>(const Case&,
                          const Case&) = default;  // NOLINT(modernize-use-nullptr): the check is wrong
};
inline constexpr std::string_view kDefault = "default";
/// With fewer samples one disturbance could make a row.
inline constexpr uint32_t kLeastSamples = 3;

struct Sample {
  double us = 0;
  uint64_t line_ns = 0;  ///< what a cache line took between the machine's cores then; 0: unknown
  uint32_t starts = 1;   ///< of the ranks; `us` is the mean of these. Not printed
  uint32_t start = 0;    ///< a number of the ranks' start; 0: unknown, and `turn` too
  uint32_t turn = 0;     ///< of all algorithms
};

/// By what part the fastest of many equal algorithms seems faster than another one, by chance, in one start
/// of the ranks. In the mean of several starts: by this over the square root of their number.
struct Noise {
  double own_cores = 0;
  double shared_cores = 0;      ///< of ranks that share `cores`
  uint32_t cores = UINT32_MAX;  ///< of a host
};

/// Kept as a text, so that a later run goes on: "all_reduce 4 1 65536 ring 12.345 57ns s1a2b.3", a line for
/// each sample. The last words are Sample::line_ns, if known, and the start and turn; without the latter,
/// three samples that follow each other are of one start. For kDefault the name of the algorithm that ran
/// stands before them.
class Samples {
 public:
  struct Size {
    std::vector<Sample> samples;  ///< in the order of their measurement
    std::string ran;              ///< kDefault: by which algorithm
  };
  using Sizes = std::map<uint64_t, Size>;

  const std::map<Case, Sizes>& cases() const { return cases_; }
  /// Errors: kInvalidArgument with "line N: ...". Safe for any input.
  static Result<Samples> parse(std::string_view text);
  std::string print() const;
  /// What another version's algorithms take is not what this version's do.
  bool are_of_this_version() const { return are_of_this_version_; }

  /// `ran`: the algorithm that ran; a sample of another algorithm than the case's is not kept.
  void add(const Case& of, uint64_t bytes, const Sample& sample, const std::string& ran);
  /// How often the case has been measured at each of these sizes, the least of them; UINT32_MAX: no sizes.
  uint32_t rounds_of(const Case& of, const std::set<uint64_t>& sizes) const;
  /// The case cannot run: it is not measured again.
  void refuse(const Case& of) { refused_[of] = true; }
  bool is_refused(const Case& of) const { return refused_.contains(of); }

  /// Rows in the form of algorithms/choice.txt: for each collective and number of ranks the fastest algorithm
  /// of each size, of those measured three times, by their rows of the same turns. The library's own choice
  /// stays where nothing is surely faster, and an algorithm keeps the next size where it loses by less than
  /// 2 %. Where the cores were at several distances, the means at each of them count, but for distances at
  /// which few algorithms were measured. A row ends where the next one's algorithm gets faster, as far as
  /// both sizes tell. The last row holds for all longer calls, too, if one of 1 MiB was measured; else up to
  /// twice the longest one measured. `are_containers`: several hosts are parts of one machine.
  std::string table(bool are_containers = false) const;

  /// What the library chose itself for alike cases; empty: unknown.
  std::string own_choice(const Case& any, uint64_t bytes) const;
  /// What a sample's algorithm is called in a comparison.
  using Name = std::function<std::string(const Case& of, const std::string& ran)>;
  /// The samples of one size of alike cases, but for distances at which few algorithms were measured three
  /// times, or the library's choice was not.
  PairedTimes paired_times(const Case& any, uint64_t bytes, const Name& name) const;

  /// Of few starts: only rows of algorithms that are faster than the library's own choice by more than noise,
  /// from half of the shortest call measured to twice the longest one.
  std::string table_of_gains(const Noise& noise) const;

 private:
  /// Each algorithm's time of one size. The library's choice is one of the algorithms.
  struct Times {
    std::map<std::string, double> us;
    std::map<std::string, uint32_t> starts;  ///< at the distance where there are the fewest
    std::string by_default;                  ///< what the library chose
  };
  struct Known {
    uint64_t bytes;
    Times times;
    std::string winner;

    bool is_own() const { return winner == times.by_default; }  ///< the library's own choice
  };
  struct Range {
    uint64_t from;
    uint64_t to;
    const Known* first;  ///< of the sizes of one winner; the list that it is in must outlive this
  };
  /// A size and its winner, behind that of the size before; no winner: empty.
  using Judge = std::function<Known(uint64_t bytes, const std::string& before)>;

  /// By algorithm and distance of the cores.
  using Measured = std::map<std::string, std::map<uint64_t, std::vector<Sample>>>;

  Measured measured_at(const Case& any, uint64_t bytes, const Name& name) const;
  static void drop_rare(Measured& all, const std::string& own);
  Times times_of(const Case& any, uint64_t bytes) const;
  Known known_of(const Case& any, uint64_t bytes, const std::string& before) const;
  static std::string clear_winner_of(const Times& times, const std::string& before, double noise);
  static uint64_t limit_between(const Known& low, const Known& high);
  std::vector<Known> known_sizes(const Case& any, const Judge& judge) const;
  static std::vector<Range> all_ranges(const std::vector<Known>& known);
  static std::vector<Range> ranges_of_gains(const std::vector<Known>& known);
  static std::string print_rows(const Case& any, ChoiceRow::Condition of_hosts,
                                const std::vector<Range>& ranges);
  static std::string note_of(const Known& size);
  /// A case of each collective, number of ranks and number of hosts.
  std::vector<Case> kinds() const;

  std::map<Case, Sizes> cases_;
  std::map<Case, bool> refused_;
  bool are_of_this_version_ = true;
};

}  // namespace tutti::tool
