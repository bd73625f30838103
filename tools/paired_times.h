// Paired times: how algorithms compare that were measured in turns. What all rows of a turn have in common
// spreads by 6 to 13 %, because machines have busy moments; what is left of a row by 3 to 7 %
// (docs/measurements/topology.md). So only rows of one turn are compared, by the logarithms of their times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::tool {

/// Of an even number the mean of the two in the middle; 0: none.
double middle(std::vector<double> values);

/// When a row was measured: rows of equal blocks are compared.
struct Block {
  uint64_t distance = 0;  ///< of the cores, ns; each distance counts once
  uint64_t start = 0;     ///< of the ranks, any number
  uint32_t turn = 0;

  friend auto operator<=>(const Block&,
                          const Block&) = default;  // NOLINT(modernize-use-nullptr): the check is wrong
};

/// By how much something takes longer than something else: a logarithm, and the standard error of it.
struct Lead {
  double mean = 0;
  double error = 0;

  /// Whether it is above or below with a probability of 95 %, or more if the rival is the best of several.
  bool is_surely_above(double limit, size_t rivals = 1) const;
  bool is_surely_below(double limit) const;
};

/// Of one size. A start of the ranks is what counts: its turns have one middle.
class PairedTimes {
 public:
  /// Rows of the same block and algorithm count as one.
  void add(const std::string& algorithm, const Block& block, double us);
  bool empty() const { return rows_.empty(); }
  size_t count() const { return rows_.size(); }
  /// Where all rows are of one start, each turn counts as a start.
  void split_one_start();

  /// Each algorithm's time in the usual turn. Turns without most of the algorithms do not count.
  std::map<std::string, double> us() const;
  /// Empty: none.
  std::string fastest() const;
  /// nullopt: the two have no turn in common.
  std::optional<Lead> lead(const std::string& slow, const std::string& fast) const;
  /// Over the fastest one: in each start, over the one that is the fastest in all others, because the best of
  /// several equal ones is the best by chance. nullopt: fewer than two starts.
  std::optional<Lead> lead_over_fastest(const std::string& algorithm) const;

 private:
  struct Row {
    double log_sum = 0;
    uint32_t count = 0;

    double log() const { return log_sum / count; }
  };
  using Rows = std::map<Block, Row>;
  /// By distance and start, of each turn.
  using Turns = std::map<uint64_t, std::map<uint64_t, std::vector<double>>>;
  struct Levels {
    std::map<std::string, double> of = {};  ///< above the middle of a block's algorithms
    double middle = 0;
  };

  Levels levels(const std::optional<uint64_t>& without_start = {}) const;
  Turns differences(const std::string& slow, const std::string& fast) const;
  double usual_variance() const;
  std::optional<Lead> lead_of(const Turns& turns) const;

  std::map<std::string, Rows> rows_;
};

}  // namespace tutti::tool
