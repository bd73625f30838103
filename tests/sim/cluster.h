// SimCluster: ranks that run real operations over the sim transport, in one thread, until nothing can happen
// any more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/links.h"
#include "engine/operation.h"
#include "transports/sim/sim.h"

namespace tutti::test {

/// One rank's ends of the links of a SimNetwork.
class SimLinks final : public LinkTable {
 public:
  SimLinks(SimNetwork& network, uint32_t rank) : network_(network), rank_(rank) {}
  SendLink* send_link(uint32_t peer, uint32_t channel) override {
    return network_.send_link(rank_, peer, channel);
  }
  RecvLink* recv_link(uint32_t peer, uint32_t channel) override {
    return network_.recv_link(peer, rank_, channel);
  }
  SendLink* publish_link() override { return network_.publish_link(rank_); }
  RecvLink* published_by(uint32_t peer) override { return network_.published_by(peer, rank_); }

 private:
  SimNetwork& network_;
  uint32_t rank_;
};

enum class Ending : uint8_t { kIdle, kDone, kWaiting, kMismatch, kStopped };

/// How a rank's operation stands when nothing can happen any more.
struct Outcome {
  Ending end = Ending::kIdle;
  uint32_t peer = 0;  ///< kWaiting: for this rank's message or credit; kMismatch: whose message
  uint32_t step = 0;
  bool sending = false;
};

/// "rank 0 done; rank 1 waits for a message of rank 2 in step 3; ...".
std::string describe(const std::vector<Outcome>& outcomes);

/// Whether every rank is done.
bool all_done(const std::vector<Outcome>& outcomes);

/// Follows, from every waiting rank, the rank that it waits for, and so on. True when each such chain ends at
/// a stopped rank.
bool waits_lead_to_stopped(const std::vector<Outcome>& outcomes);

/// Ranks with links and an operation each, whatever carries the links.
class RankSet {
 public:
  virtual ~RankSet() = default;
  virtual LinkTable& links(uint32_t rank) = 0;
  /// The rank's next operation, bound to links(rank) and started by the caller.
  virtual void set_operation(uint32_t rank, std::unique_ptr<Operation> operation) = 0;
  virtual Operation& operation(uint32_t rank) = 0;
  /// The rank's operation has been started again: for `on_done`.
  virtual void restart(uint32_t rank) = 0;
  /// Whether the rank has had a turn since its operation was set.
  virtual bool has_begun(uint32_t rank) const = 0;
};

class SimCluster final : public RankSet {
 public:
  explicit SimCluster(const SimOptions& options);

  SimNetwork& network() { return network_; }
  LinkTable& links(uint32_t rank) override { return *links_[rank]; }
  void set_operation(uint32_t rank, std::unique_ptr<Operation> operation) override;
  Operation& operation(uint32_t rank) override { return *operations_[rank]; }
  void restart(uint32_t rank) override;
  bool has_begun(uint32_t rank) const override { return begun_[rank]; }

  /// Runs all operations until nothing can happen any more. `on_done` is called at the very moment a rank's
  /// operation is done. May be called again after set_operation or SimNetwork::revive_rank.
  std::vector<Outcome> run(const std::function<void(uint32_t rank)>& on_done);

 private:
  void take_turn(uint32_t rank, const std::function<void(uint32_t rank)>& on_done);
  Outcome waiting(uint32_t rank) const;

  SimNetwork network_;
  std::vector<std::unique_ptr<SimLinks>> links_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Outcome> outcomes_;
  std::vector<bool> begun_;
};

}  // namespace tutti::test
