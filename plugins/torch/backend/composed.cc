// The calls of Backend that are made of other calls: monitored barrier, and all_reduce of sparse tensors.
#include <c10/util/Exception.h>

#include <numeric>

#include "backend.h"

namespace tutti_torch {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& text) {
  throw c10::DistBackendError({"tutti", "tutti.torch", 0}, "tutti: " + text);
}

/// Whether the key is there before the deadline.
bool comes(c10d::Store& store, const std::string& key, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) return store.check({key});
  try {
    store.wait({key}, left);
    return true;
  } catch (const c10::Error&) {
    return false;  // the store's own word for a deadline that has passed
  }
}

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

constexpr int64_t kDimensionsMax = 16;

}  // namespace

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  // Through the store, so that a rank that is stuck in another call is found, and no call is disturbed.
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const auto deadline = Clock::now() + timeout;
  const std::string prefix = c10::str("monitored/", monitored_++, "/");
  const std::string verdict = prefix + "verdict";
  const std::string read = prefix + "read";
  const std::string done = prefix + "done";
  if (rank_ != 0) {
    store_->set(prefix + std::to_string(rank_), "here");
    const bool came = comes(*store_, verdict, deadline);
    const auto value = came ? store_->get(verdict) : std::vector<uint8_t>{};
    if (came && value == std::vector<uint8_t>{'o', 'k'}) {
      if (store_->add(read, 1) == size_ - 1) store_->set(done, "all");
      return;
    }
    fail(c10::str("Rank ", rank_,
                  " successfully reached monitoredBarrier, but received errors while waiting for ",
                  "send/recv from rank 0: ",
                  came ? std::string(value.begin(), value.end())
                       : c10::str("Timed out waiting ", timeout.count(), "ms for its verdict")));
  }
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank) {
    if (!comes(*store_, prefix + std::to_string(rank), deadline)) missing.push_back(rank);
  }
  std::string text = "ok";
  if (!missing.empty()) {
    text =
        timeout.count() == 0 && !wait_all_ranks
            ? c10::str("Rank 0 timed out in monitoredBarrier after 0 ms: rank ", missing[0], " has not come")
            : c10::str(wait_all_ranks ? "Ranks " : "Rank ", listed(missing),
                       " failed to pass monitoredBarrier in ", timeout.count(), " ms");
  }
  store_->set(verdict, text);
  if (!missing.empty()) fail(text);
  // Rank 0 may hold the store: it stays until all ranks have read the verdict. Then nobody needs the keys.
  if (size_ == 1 || comes(*store_, done, deadline)) {
    for (int rank = 1; rank < size_; ++rank) forget(*store_, prefix + std::to_string(rank));
    for (const std::string& key : {verdict, read, done}) forget(*store_, key);
  }
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = tensors.at(0);
  only(tensors);
  TORCH_CHECK(tensor.layout() == at::kSparse && tensor.device().is_cpu(), "tutti: the tensor has the layout ",
              tensor.layout(), " on ", tensor.device(),
              "; all_reduce takes strided and COO tensors on the CPU");
  const auto op = options.reduceOp.op_;
  TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
              "tutti: sparse tensors can be summed and averaged only");
  return all_reduce_sparse_now(tensor, options);
}

/// Gathers all ranks' indices and values and adds them here. Blocks also when the call is asynchronous.
Backend::WorkPtr Backend::all_reduce_sparse_now(at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  const at::Tensor own = tensor.coalesce();
  TORCH_CHECK(own.dim() + 2 <= kDimensionsMax, "tutti: a sparse tensor may have at most ", kDimensionsMax - 2,
              " dimensions");
  // nnz, sparse dimensions, sizes: equal on all ranks but for nnz.
  std::vector<int64_t> facts(kDimensionsMax, 0);
  facts[0] = own._nnz();
  facts[1] = own.sparse_dim();
  std::copy(own.sizes().begin(), own.sizes().end(), facts.begin() + 2);
  at::Tensor fact = at::tensor(facts);
  at::Tensor all_facts = at::empty({size_, kDimensionsMax}, fact.options());
  const c10d::AllgatherOptions blocking{.timeout = options.timeout, .asyncOp = false};
  _allgather_base(all_facts, fact, blocking)->wait();
  std::vector<Tensors> indices(1);
  std::vector<Tensors> values(1);
  for (int rank = 0; rank < size_; ++rank) {
    TORCH_CHECK(at::equal(all_facts[rank].slice(0, 1), fact.slice(0, 1)), "tutti: rank ", rank_,
                " reduces a sparse tensor of sizes ", own.sizes(), ", but rank ", rank,
                " has other sizes or sparse dimensions");
    const auto count = all_facts[rank][0].item<int64_t>();
    indices[0].push_back(at::empty({count, own.sparse_dim()}, fact.options()));
    auto sizes = own.values().sizes().vec();
    sizes[0] = count;
    values[0].push_back(at::empty(sizes, own.values().options()));
  }
  Tensors own_indices = {own.indices().t().contiguous()};
  Tensors own_values = {own.values().contiguous()};
  allgather(indices, own_indices, blocking)->wait();
  allgather(values, own_values, blocking)->wait();
  at::Tensor sum =
      at::sparse_coo_tensor(at::cat(indices[0]).t(), at::cat(values[0]), own.sizes(), own.options())
          .coalesce();
  if (options.reduceOp.op_ == c10d::ReduceOp::AVG) sum = sum / size_;
  tensor.copy_(sum);
  auto work = make_work({.type = c10d::OpType::_ALLREDUCE_SPARSE,
                         .title = "tutti:sparse_all_reduce",
                         .inputs = {tensor},
                         .outputs = {tensor},
                         .timeout = options.timeout},
                        sequence_);
  work->complete(nullptr);
  return work;
}

}  // namespace tutti_torch
