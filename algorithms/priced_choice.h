// PricedChoice: the algorithm with the lowest predicted time, for requests that no measured row decides.
//
// A row is decided once for a class of sizes, each class twice as large as the one before. A decision is a
// pure function of machine, facts, request and the table's algorithm, so all ranks come to the same one. The
// table's algorithm stays unless another one is predicted to be faster by kWorthAChange: the model is not
// better than that. Times are then monotone in size up to that factor, so there are no cliffs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "algorithms/choice.h"
#include "algorithms/predict.h"

namespace tutti {

struct PricedRow {
  ChoiceRow row;  ///< in the form of the choice table; the algorithm that was chosen
  const Algorithm* algorithm = nullptr;
  double price_us = 0;  ///< of the chosen algorithm, in the middle of the class; 0: unknown
  const Algorithm* by_table = nullptr;
  double by_table_us = 0;           ///< at least; 0: unknown
  const Algorithm* next = nullptr;  ///< the fastest of the others; null: there is none
  double next_us = 0;               ///< at least
  std::string limit = {};           ///< the link with the most to do: "network h0/nic0 -> network"
};

class PricedChoice {
 public:
  /// `machine` borrows its routes and places.
  explicit PricedChoice(const PricedMachine& machine) : machine_(machine) {}

  /// `by_table`: what the choice table says. The row stays where it is. Equal for equal requests and facts.
  const PricedRow& choose(const Request& request, const Facts& facts, const Algorithm& by_table);

  /// All rows so far, in the form of algorithms/choice.txt, with prices as comments.
  std::string print() const;

 private:
  using Key = std::tuple<Collective, uint32_t, uint32_t, bool, bool, bool, const Algorithm*>;
  PricedRow decide(Request request, const Facts& facts, const Algorithm& by_table, uint32_t size_class) const;

  PricedMachine machine_;
  std::map<Key, PricedRow> rows_;
};

}  // namespace tutti
