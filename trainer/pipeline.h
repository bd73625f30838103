// Pipeline: carries out a schedule on one rank.
//
// A slot holds what a micro-batch leaves behind between its forward and its backward pass: a copy of the
// layers, with their activations, on shared parameters. Messages to each neighbour, in each direction, have a
// communicator and a stream of their own. So a send never stands in the way of another message, and a
// schedule without a deadlock on paper has none here.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "trainer/mesh.h"
#include "trainer/mode.h"
#include "trainer/optimizer.h"
#include "trainer/schedule.h"
#include "trainer/task.h"

namespace tutti::trainer {

/// Matrices from one rank to another.
class Channel {
 public:
  /// Collective on `parent`. Other ranks take part too, and get a channel that they must not use.
  Channel(Axis& parent, int from, int to);
  /// Copies the matrix and returns at once.
  void send(const Matrix& matrix);
  /// Blocks until the matrix is there.
  void recv(Matrix* matrix);
  /// Blocks until the peer has all that was sent.
  void flush();
  double sent_bytes() const { return axis_.sent_bytes(); }

 private:
  struct Message {
    float shape[2];
    Matrix matrix;
  };
  std::deque<Message> outbox_;
  HostStream stream_;
  Axis axis_;  ///< destroyed first, which ends calls on the stream after a failure
};

class Pipeline {
 public:
  struct Setup {
    const ModeContext& context;
    Axis& axis;  ///< of the stages
    Schedule schedule;
    bool flushes = true;       ///< false: PipeDream; the schedule then covers the whole run
    Placement placement = {};  ///< its stage is set by the pipeline
    size_t data_rank = 0;      ///< which shard of each batch
    size_t data_count = 1;
    /// Called before an update: sums the gradients over other axes. May be empty.
    std::function<void(Parameters&)> reduce = {};
  };

  /// Collective on the axis. Throws Error.
  explicit Pipeline(Setup setup);

  /// The actions of one batch; without flushes, up to the update for the batch's last micro-batch. Returns
  /// the loss at the last stage.
  Loss step(size_t step);
  void copy_to(std::span<float> whole) const;
  double sent_bytes() const;
  /// Most micro-batches that were alive on this rank.
  size_t alive_max() const { return alive_max_; }
  /// Bytes that this rank sends in a batch: `activation_bytes` are those of a batch at a border.
  double formula_bytes(double activation_bytes) const;

 private:
  struct Slot {
    std::optional<size_t> micro_batch;
    std::unique_ptr<Model> model;
    std::vector<float> stash;  ///< PipeDream: the parameters of the forward pass
    Batch batch;
    Matrix input;
    Matrix output_gradient;
  };
  struct Chunk {
    std::unique_ptr<Model> owner;  ///< of the parameters
    std::unique_ptr<Optimizer> optimizer;
    std::deque<Slot> slots;
  };
  std::unique_ptr<Model> make_model(size_t chunk, bool allocates) const;
  Slot& slot_of(Chunk& chunk, std::optional<size_t> micro_batch);
  bool is_last(size_t stage) const { return stage + 1 == stages_; }
  void forward(const Action& action);
  void backward(const Action& action);
  void update(size_t step, size_t number);
  size_t stage_of(const Action& action) const;
  /// With the micro-batch's number in the whole run.
  Action in_step(Action action, size_t step) const;

  Setup setup_;
  size_t stages_;
  Sampler sampler_;
  std::vector<Chunk> chunks_;
  std::vector<std::unique_ptr<Channel>> channels_;
  Channel* to_above_ = nullptr;  ///< activations
  Channel* from_below_ = nullptr;
  Channel* to_below_ = nullptr;  ///< gradients
  Channel* from_above_ = nullptr;
  size_t next_action_ = 0;
  size_t alive_ = 0;
  size_t alive_max_ = 0;
  Loss loss_;
};

}  // namespace tutti::trainer
