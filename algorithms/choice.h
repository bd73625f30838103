// Choice: selects the algorithm for a request, from inputs that are equal on all ranks. The measured table
// algorithms/choice.txt is embedded at build time; the user may give another file. The first row that
// matches, and whose algorithm supports the request, wins. The top of choice.txt describes the rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.h"
#include "core/result.h"

namespace tutti {

struct ChoiceRow {
  Collective collective = Collective::kAllReduce;
  uint32_t ranks_min = 1;
  uint32_t ranks_max = UINT32_MAX;
  uint64_t bytes_min = 0;  ///< of Request::block_bytes times the blocks (the message)
  uint64_t bytes_max = UINT64_MAX;
  /// A condition on the facts. kAny: always true. kShort: packets can and should carry the message. kHosts:
  /// several hosts. kContainers: these are parts of one machine. kOversubscribed: more ranks than cores on a
  /// host.
  enum class Condition : uint8_t {
    kAny,
    kPublish,
    kReference,
    kMulticast,
    kShort,
    kHosts,
    kContainers,
    kOversubscribed
  } condition = Condition::kAny;
  std::string algorithm;
  /// Nobody has measured this row. Where a price is known, the price may choose another algorithm.
  bool is_estimate = false;
};

/// The row as a line of a table.
std::string print_row(const ChoiceRow& row);

class ChoiceTable {
 public:
  /// Errors: kInvalidArgument with the line. Safe for any input.
  static Result<ChoiceTable> parse(std::string_view text);
  /// The embedded table. It always parses (a test checks this).
  static const ChoiceTable& built_in();

  /// The algorithm of the first row that matches and is supported. Without such a row: the first algorithm of
  /// the registry that supports the request. Never null for a valid request: every collective except
  /// kSendRecv has an algorithm for any rank count. *row, if given, gets the index of the row, or
  /// rows().size() if no row matched; tutti_comm_explain uses it. `short_bytes`: the most that a
  /// rank can send another as packets of data and flag in one call. If it is 0, no kShort row matches; else
  /// their algorithms' plans are made and counted.
  const Algorithm* choose(const Request& request, const Facts& facts, uint32_t* row = nullptr,
                          uint64_t short_bytes = 0) const;

  const std::vector<ChoiceRow>& rows() const { return rows_; }
  /// A table that asks `first`, then this one.
  ChoiceTable behind(const ChoiceTable& first) const;

 private:
  std::vector<ChoiceRow> rows_;
};

}  // namespace tutti
