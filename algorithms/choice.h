// Choice: which algorithm serves a request. A pure function of agreed inputs, read from a measured table
// kept as data (algorithms/choice.txt, embedded at build; another file may be given).
//
// A row: collective, rank count range, message bytes range, condition, algorithm; the form is described at
// the top of choice.txt. The first row that matches and whose algorithm supports the request wins.
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
  /// On the facts. kAny: do not care; kShort: packets can carry the message, and shall; kHosts: several
  /// hosts; kOversubscribed: more ranks than cores on a host.
  enum class Condition : uint8_t {
    kAny,
    kPublish,
    kReference,
    kMulticast,
    kShort,
    kHosts,
    kOversubscribed
  } condition = Condition::kAny;
  std::string algorithm;
};

class ChoiceTable {
 public:
  /// Errors: kInvalidArgument with the line. Survives any input.
  static Result<ChoiceTable> parse(std::string_view text);
  /// The embedded table; it always parses (a test checks it).
  static const ChoiceTable& built_in();

  /// The algorithm of the first row that matches and is supported; without such a row the first of the
  /// registry that supports the request. Never null for a valid request (every collective but kSendRecv has
  /// an algorithm for any rank count). *row, if given: the index of the row that decided, or rows().size()
  /// when none did, for tutti_comm_explain. `short_bytes`: the largest message whose parts can travel between
  /// any two ranks as packets of data and flag; only with it rows of kShort decide. Does not allocate.
  const Algorithm* choose(const Request& request, const Facts& facts, uint32_t* row = nullptr,
                          uint64_t short_bytes = 0) const;

  const std::vector<ChoiceRow>& rows() const { return rows_; }

 private:
  std::vector<ChoiceRow> rows_;
};

}  // namespace tutti
