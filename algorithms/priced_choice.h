// PricedChoice: the algorithm with the lowest predicted time, for requests that no measured row decides; and
// between devices, whether its messages travel as packets.
//
// A row is decided once for a class of sizes, each class twice as large as the one before. A decision is a
// pure function of machine, facts, request and the table's choice, so all ranks come to the same one. The
// table's choice stays unless another one is predicted to be faster by kWorthAChange: the model is not
// better than that. Times are then monotone in size up to that factor, so there are no cliffs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/choice.h"
#include "algorithms/predict.h"

namespace tutti {

/// What the choice table says of a request.
struct TableChoice {
  Way way;                  ///< its algorithm is null if none serves the request
  uint32_t row = 0;         ///< as of ChoiceTable::choose
  bool is_estimate = true;  ///< so the price may choose another way
};

/// `packet_bytes_max`: as in ways_of.
TableChoice choose_by_table(const ChoiceTable& table, const Request& request, const Facts& facts,
                            uint64_t packet_bytes_max = 0);

struct PricedRow {
  ChoiceRow row;  ///< in the form of the choice table; what was chosen
  /// The priced request's. A row may hold for some types and operators only.
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Way way;              ///< what was chosen
  double price_us = 0;  ///< of `way`, in the middle of the class; 0: unknown
  Way by_table;
  double by_table_us = 0;     ///< at least; 0: unknown
  Way next = {};              ///< the fastest of the others; its algorithm is null if there is none
  double next_us = 0;         ///< at least
  std::string limit = {};     ///< the link with the most to do: "network h0/nic0 -> network"
  std::string no_price = {};  ///< why the price is unknown
};

class PricedChoice {
 public:
  /// `machine` borrows its routes and places.
  explicit PricedChoice(const PricedMachine& machine) : machine_(machine) {}

  /// `by_table`: what the choice table says. `packet_bytes_max`: as in ways_of. The row stays where it is.
  /// Equal for equal requests and facts.
  const PricedRow& choose(const Request& request, const Facts& facts, Way by_table,
                          uint64_t packet_bytes_max = 0);

  const PricedMachine& machine() const { return machine_; }
  /// All rows so far, in the form of algorithms/choice.txt, with prices as comments.
  std::string print() const;

 private:
  /// Sizes of a class may differ in what packets can carry, and types in what a switch can reduce: then their
  /// ways differ. Types may also differ in the data of a packet, which comes last (0: no
  /// way has packets).
  using Key = std::tuple<Collective, uint32_t, uint32_t, bool, bool, bool, Way, std::vector<Way>, uint32_t>;
  PricedRow decide(Request request, const Facts& facts, const Way& by_table, std::span<const Way> ways,
                   uint32_t size_class) const;

  PricedMachine machine_;
  std::map<Key, PricedRow> rows_;
};

}  // namespace tutti
