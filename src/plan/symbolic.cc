#include "plan/symbolic.h"

#include <array>
#include <string>
#include <vector>

#include "plan/expressions.h"
#include "plan/memory_map.h"

namespace tutti {
namespace {

using Id = Expressions::Id;

class SymbolicRun {
 public:
  SymbolicRun(std::span<const Plan> plans, const PlanGraph& graph, const ValueOptions& options)
      : plan_(plans[0]),
        graph_(graph),
        options_(options),
        memory_(plans[0], options.in_place),
        terms_(plans[0].rank_count),
        values_(memory_.size(), Expressions::kUndefined) {}

  Status run() {
    result_first_.assign(graph_.events().size(), 0);
    for (const uint32_t event : graph_.order()) TUTTI_TRY(run_event(event));
    return {};
  }

  /// Checks the result of the collective.
  Status check_outputs() {
    const bool only_root = plan_.collective == Collective::kReduce || plan_.collective == Collective::kGather;
    canonical_ = true;
    for (uint32_t rank = 0; rank < plan_.rank_count; ++rank) {
      if (only_root && rank != plan_.root) continue;
      for (uint32_t chunk = 0; chunk < memory_.output_chunks(); ++chunk) {
        TUTTI_TRY(check_output(rank, chunk));
      }
    }
    return {};
  }

  PlanAssociation association() const {
    if (!reduces(plan_.collective) || plan_.rank_count == 1) return PlanAssociation::kNone;
    return canonical_ ? PlanAssociation::kCanonical : PlanAssociation::kAny;
  }

 private:
  Status fail(uint32_t event, const std::string& text) const {
    return {Code::kInvalidArgument,
            graph_.name(event) + " " + text + (options_.in_place ? " (in place)" : "")};
  }

  Status run_event(uint32_t event) {
    const GraphEvent& at = graph_.events()[event];
    const Step& step = *at.step;
    result_first_[event] = results_.size();
    for (uint32_t k = 0; k < step.chunk_count; ++k) {
      TUTTI_TRY(read_sources(event, k));
      TUTTI_TRY(check_operands(event, k));
      const std::span operands(operands_.data(), step.sources.size());
      const Id value = terms_.reduce_canonically(operands);
      results_.push_back(step.finish ? terms_.finish(value) : value);
    }
    for (const End& sink : step.sinks) {
      if (sink.kind != EndKind::kOutput && sink.kind != EndKind::kScratch) continue;
      for (uint32_t k = 0; k < step.chunk_count; ++k) {
        const uint32_t chunk = sink.first_chunk + k;
        const uint32_t named = step.first_chunk + k;
        if (sink.kind == EndKind::kOutput && !same_size(output_number(at.rank, chunk), named)) {
          return fail(event,
                      format("writes chunk %u to output chunk %u, which has another size", named, chunk));
        }
        values_[memory_.at(at.rank, sink.kind, chunk)] = results_[result_first_[event] + k];
      }
    }
    return {};
  }

  /// Fills operands_ with the k-th chunk of each source of the step.
  Status read_sources(uint32_t event, uint32_t k) {
    const GraphEvent& at = graph_.events()[event];
    auto message = graph_.received(event).begin();
    for (size_t i = 0; i < at.step->sources.size(); ++i) {
      const End& source = at.step->sources[i];
      if (source.kind == EndKind::kCollect) return collect(event, k);
      if (source.kind == EndKind::kLink) {
        operands_[i] = results_[result_first_[(message++)->sender] + k];
        continue;
      }
      const uint32_t chunk = source.first_chunk + k;
      const Id held = values_[memory_.at(at.rank, source.kind, chunk)];
      if (source.kind == EndKind::kInput) {
        // Pre-multiplication scales each read of the input. So the step must read the input itself, and not a
        // copy, which is scaled already.
        operands_[i] = terms_.leaf(at.rank, chunk);
        if (held != Expressions::kUndefined && (reduces(plan_.collective) || held != operands_[i])) {
          return fail(event, format("reads input chunk %u after it was overwritten by %s", chunk,
                                    terms_.text(held).c_str()));
        }
      } else {
        if (held == Expressions::kUndefined) {
          return fail(event, format("reads %s chunk %u before anything is written there",
                                    source.kind == EndKind::kOutput ? "output" : "scratch", chunk));
        }
        operands_[i] = held;
      }
    }
    return {};
  }

  /// Fills the only operand with the k-th chunk of all ranks' contributions.
  Status collect(uint32_t event, uint32_t k) {
    Id sum = Expressions::kUndefined;
    for (const GraphMessage& message : graph_.received(event)) {
      const Id part = results_[result_first_[message.sender] + k];
      if (terms_.kind(part) == Expressions::Kind::kFinished)
        return fail(event, "collects a value that is already finished: " + terms_.text(part));
      if (sum != Expressions::kUndefined) {
        TUTTI_TRY(check_pair(event, sum, part));
        sum = terms_.reduce_unordered(sum, part);
      } else {
        sum = part;
      }
    }
    operands_[0] = sum;
    return {};
  }

  /// Checks two operands of one reduction.
  Status check_pair(uint32_t event, Id left, Id right) const {
    if (terms_.chunk(left) != terms_.chunk(right)) {
      return fail(event, format("reduces %s with %s", terms_.text(left).c_str(), terms_.text(right).c_str()));
    }
    if (plan_.collective == Collective::kBarrier || !terms_.ranks_intersect(left, right)) return {};
    return fail(event, format("counts an operand twice: %s and %s", terms_.text(left).c_str(),
                              terms_.text(right).c_str()));
  }

  Status check_operands(uint32_t event, uint32_t k) {
    const Step& step = *graph_.events()[event].step;
    const uint32_t named = step.first_chunk + k;
    for (size_t i = 0; i < step.sources.size(); ++i) {
      const Id operand = operands_[i];
      if (!same_size(data_number(operand), named)) {
        return fail(event,
                    format("covers chunk %u, but its data is %s", named, terms_.text(operand).c_str()));
      }
      const bool finished = terms_.kind(operand) == Expressions::Kind::kFinished;
      if (finished && (step.sources.size() > 1 || step.finish)) {
        return fail(event, "reduces a value that is already finished: " + terms_.text(operand));
      }
      for (size_t j = 0; j < i; ++j) TUTTI_TRY(check_pair(event, operands_[j], operand));
    }
    return {};
  }

  /// Whether two chunks, in the numbering of the geometry buffer, have the same size. With equal blocks,
  /// chunks with equal indices do. In all_to_all only two ranks know the size of a block, so no numbering
  /// holds for all ranks.
  bool same_size(uint32_t a, uint32_t b) const {
    if (options_.variable_counts && plan_.collective != Collective::kAllToAll) return a == b;
    return a % plan_.chunks_per_block == b % plan_.chunks_per_block;
  }

  /// The number, in the geometry buffer, of data that began as `value`.
  uint32_t data_number(Id value) const {
    const bool gathers =
        plan_.collective == Collective::kAllGather || plan_.collective == Collective::kGather;
    return terms_.chunk(value) + (gathers ? terms_.rank(value) * plan_.chunks_per_block : 0);
  }

  /// The number, in the geometry buffer, of an output chunk.
  uint32_t output_number(uint32_t rank, uint32_t chunk) const {
    const bool scatters =
        plan_.collective == Collective::kReduceScatter || plan_.collective == Collective::kScatter;
    return chunk + (scatters ? rank * plan_.chunks_per_block : 0);
  }

  Status check_output(uint32_t rank, uint32_t chunk) {
    const Id held = values_[memory_.at(rank, EndKind::kOutput, chunk)];
    const auto wrong = [&](const std::string& expected) {
      return Status(Code::kInvalidArgument, format("output chunk %u of rank %u holds %s; expected ", chunk,
                                                   rank, terms_.text(held).c_str()) +
                                                expected + (options_.in_place ? " (in place)" : ""));
    };
    if (plan_.collective == Collective::kBarrier) {
      const bool complete = held != Expressions::kUndefined && terms_.has_all_ranks(held);
      return complete ? Status::ok() : wrong("something of every rank");
    }
    if (!reduces(plan_.collective)) {
      const Id expected = expected_copy(rank, chunk);
      return held == expected ? Status::ok() : wrong(terms_.text(expected));
    }
    const uint32_t input_chunk =
        plan_.collective == Collective::kReduceScatter ? rank * plan_.chunks_per_block + chunk : chunk;
    if (held == Expressions::kUndefined || terms_.chunk(held) != input_chunk || !terms_.has_all_ranks(held)) {
      return wrong(format("input chunk %u of all ranks, reduced", input_chunk));
    }
    if (terms_.kind(held) != Expressions::Kind::kFinished)
      return wrong("a finished value; no step has 'finish'");
    canonical_ = canonical_ && terms_.finished_value(held) == canonical_tree(input_chunk);
    return {};
  }

  Id expected_copy(uint32_t rank, uint32_t chunk) {
    const uint32_t cut = plan_.chunks_per_block;
    switch (plan_.collective) {
      case Collective::kAllGather:
      case Collective::kGather: return terms_.leaf(chunk / cut, chunk % cut);
      case Collective::kAllToAll: return terms_.leaf(chunk / cut, rank * cut + chunk % cut);
      case Collective::kScatter: return terms_.leaf(plan_.root, rank * cut + chunk);
      default: return terms_.leaf(plan_.root, chunk);
    }
  }

  Id canonical_tree(uint32_t input_chunk) {
    std::vector<Id> leaves(plan_.rank_count);
    for (uint32_t rank = 0; rank < plan_.rank_count; ++rank) leaves[rank] = terms_.leaf(rank, input_chunk);
    return terms_.reduce_canonically(leaves);
  }

  const Plan& plan_;
  const PlanGraph& graph_;
  const ValueOptions& options_;
  MemoryMap memory_;
  Expressions terms_;
  /// By location. Undefined: not written yet.
  std::vector<Id> values_;
  /// Results of all events so far, one per chunk. Messages carry these results.
  std::vector<Id> results_;
  std::vector<size_t> result_first_;
  std::array<Id, kMaxStepSources> operands_{};
  bool canonical_ = true;
};

}  // namespace

Status check_values(std::span<const Plan> plans, const PlanGraph& graph, const ValueOptions& options,
                    PlanAssociation* found) {
  SymbolicRun run(plans, graph, options);
  TUTTI_TRY(run.run());
  TUTTI_TRY(run.check_outputs());
  if (found != nullptr) *found = run.association();
  return {};
}

}  // namespace tutti
