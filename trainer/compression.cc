#include "trainer/compression.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/error.h"
#include "trainer/matrix.h"
#include "trainer/random.h"

namespace tutti::trainer {
namespace {

constexpr uint64_t kSeed = 1;  // of powersgd's first thin matrices, equal on every rank

class Compression : public Reduction {
 public:
  explicit Compression(tutti_comm_t* comm) : comm_(comm) {
    check(tutti_comm_count(comm, &rank_count_), "asking for the rank count");
    check(tutti_comm_rank(comm, &rank_), "asking for the rank");
  }

 protected:
  /// The bytes of a reduce-scatter and an all-gather; no algorithm needs fewer.
  double all_reduce_bytes(size_t count, size_t element_bytes) const {
    return 2.0 * (rank_count_ - 1) / rank_count_ * static_cast<double>(count * element_bytes);
  }
  void all_reduce(void* values, size_t count, tutti_type_t type, tutti_stream_t stream) {
    check(tutti_all_reduce(values, values, count, type, TUTTI_SUM, comm_, stream), "reducing gradients");
  }

  tutti_comm_t* comm_;
  int rank_count_ = 1;
  int rank_ = 0;
};

class Plain : public Compression {
 public:
  using Compression::Compression;
  void start(const Bucket& bucket, tutti_stream_t stream) override {
    all_reduce(bucket.values.data(), bucket.values.size(), TUTTI_FLOAT32, stream);
  }
  bool proceed(const Bucket&, tutti_stream_t) override { return true; }
  double wire_bytes(const Bucket& bucket) const override {
    return all_reduce_bytes(bucket.values.size(), sizeof(float));
  }
};

/// The sum, computed in a type of 16 bits.
class Half : public Compression {
 public:
  Half(tutti_comm_t* comm, const std::vector<Bucket>& buckets, const BackendPointer& backend,
       tutti_type_t type)
      : Compression(comm), type_(type) {
    for (const Bucket& bucket : buckets) halves_.emplace_back(bucket.values.size(), backend);
  }
  void start(const Bucket& bucket, tutti_stream_t stream) override {
    BackendVector<uint16_t>& half = halves_[bucket.index];
    const auto convert = type_ == TUTTI_FLOAT16 ? to_f16 : to_bf16;
    std::transform(bucket.values.begin(), bucket.values.end(), half.data(), convert);
    all_reduce(half.data(), half.size(), type_, stream);
  }
  bool proceed(const Bucket& bucket, tutti_stream_t) override {
    BackendVector<uint16_t>& half = halves_[bucket.index];
    const auto convert = type_ == TUTTI_FLOAT16 ? from_f16 : from_bf16;
    std::transform(half.data(), half.data() + half.size(), bucket.values.begin(), convert);
    return true;
  }
  double wire_bytes(const Bucket& bucket) const override {
    return all_reduce_bytes(bucket.values.size(), sizeof(uint16_t));
  }

 private:
  tutti_type_t type_;
  std::vector<BackendVector<uint16_t>> halves_;
};

/// Each rank sends its k largest numbers and their positions. Every rank adds up all of them.
class TopK : public Compression {
 public:
  TopK(tutti_comm_t* comm, const std::vector<Bucket>& buckets, const BackendPointer& backend, double share)
      : Compression(comm), share_(share) {
    if (!(share > 0 && share <= 1)) throw Error("topk sends a share of 0 to 1 of the gradients, 0 excluded");
    for (const Bucket& bucket : buckets) {
      residuals_.emplace_back(bucket.values.size());
      pairs_.emplace_back(2 * sent_count(bucket) * static_cast<size_t>(rank_count_), backend);
    }
  }
  void start(const Bucket& bucket, tutti_stream_t stream) override {
    std::vector<float>& residual = residuals_[bucket.index];
    for (size_t i = 0; i < residual.size(); ++i) residual[i] += bucket.values[i];
    const size_t count = sent_count(bucket);
    order_.resize(residual.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint32_t>(i);
    std::nth_element(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(count), order_.end(),
                     [&](uint32_t a, uint32_t b) { return std::abs(residual[a]) > std::abs(residual[b]); });
    BackendVector<uint32_t>& all = pairs_[bucket.index];
    uint32_t* mine = all.data() + 2 * count * static_cast<size_t>(rank_);
    for (size_t i = 0; i < count; ++i) {
      mine[2 * i] = order_[i];
      mine[2 * i + 1] = std::bit_cast<uint32_t>(std::exchange(residual[order_[i]], 0.0F));
    }
    check(tutti_all_gather(mine, all.data(), 2 * count, TUTTI_UINT32, comm_, stream), "gathering gradients");
  }
  bool proceed(const Bucket& bucket, tutti_stream_t) override {
    std::fill(bucket.values.begin(), bucket.values.end(), 0.0F);
    BackendVector<uint32_t>& all = pairs_[bucket.index];
    for (size_t i = 0; i < all.size(); i += 2) bucket.values[all[i]] += std::bit_cast<float>(all[i + 1]);
    return true;
  }
  double wire_bytes(const Bucket& bucket) const override {
    return static_cast<double>(rank_count_ - 1) *
           static_cast<double>(2 * sent_count(bucket) * sizeof(uint32_t));
  }
  std::vector<std::span<float>> state() override { return {residuals_.begin(), residuals_.end()}; }

 private:
  size_t sent_count(const Bucket& bucket) const {
    const double count = share_ * static_cast<double>(bucket.values.size());
    return std::max<size_t>(1, static_cast<size_t>(count));
  }

  double share_;
  std::vector<std::vector<float>> residuals_;
  std::vector<BackendVector<uint32_t>> pairs_;  ///< from all ranks: position, bits of the number
  std::vector<uint32_t> order_;
};

/// Makes the columns orthonormal (Gram and Schmidt). A column that depends on earlier columns leaves only
/// rounding errors, and becomes 0.
void make_orthonormal(Block matrix) {
  const auto dot = [&](size_t a, size_t b) {
    double sum = 0;
    for (size_t i = 0; i < matrix.rows; ++i)
      sum += static_cast<double>(matrix.data[i * matrix.stride + a]) * matrix.data[i * matrix.stride + b];
    return sum;
  };
  constexpr double kRounding = 1e-5;
  for (size_t column = 0; column < matrix.columns; ++column) {
    const double before_norm = std::sqrt(dot(column, column));
    // Two passes: after the first pass the rounding errors can be as large as the remaining column.
    for (int pass = 0; pass < 2; ++pass)
      for (size_t before = 0; before < column; ++before) {
        const auto factor = static_cast<float>(dot(before, column));
        for (size_t i = 0; i < matrix.rows; ++i)
          matrix.data[i * matrix.stride + column] -= factor * matrix.data[i * matrix.stride + before];
      }
    const double norm = std::sqrt(dot(column, column));
    const float factor = norm > kRounding * before_norm ? static_cast<float>(1 / norm) : 0;
    for (size_t i = 0; i < matrix.rows; ++i) matrix.data[i * matrix.stride + column] *= factor;
  }
}

/// A gradient M [rows, columns] is approximated by P Q^T of rank r. P = M Q with the Q of the last step,
/// summed and made orthonormal; then Q = M^T P, summed. Each training step is one step of the power
/// iteration.
class PowerSgd : public Compression {
 public:
  PowerSgd(tutti_comm_t* comm, const std::vector<Bucket>& buckets, const BackendPointer& backend,
           const CompressionOptions& options)
      : Compression(comm), rank_limit_(options.rank) {
    if (options.rank == 0) throw Error("powersgd needs a rank of 1 or more");
    for (const Bucket& bucket : buckets) {
      size_t left_count = 0;
      size_t right_count = 0;
      for (const Tensor& tensor : bucket.tensors) {
        left_count += is_thin(tensor) ? tensor.rows * options.rank : tensor.count();
        right_count += is_thin(tensor) ? tensor.columns * options.rank : 0;
      }
      left_.emplace_back(left_count, backend);
      right_.emplace_back(right_count, backend);
      residuals_.emplace_back(bucket.values.size());
      Random random(kSeed, bucket.index);
      for (size_t i = 0; i < right_count; ++i) right_.back()[i] = static_cast<float>(random.normal());
      second_.push_back(false);
    }
  }

  void start(const Bucket& bucket, tutti_stream_t stream) override {
    std::vector<float>& residual = residuals_[bucket.index];
    for (size_t i = 0; i < residual.size(); ++i) bucket.values[i] += residual[i];
    visit(bucket, [&](const Tensor& tensor, Block gradient, Block left, Block right) {
      if (is_thin(tensor))
        multiply(gradient, right, left);
      else
        std::copy(gradient.data, gradient.data + tensor.count(), left.data);
    });
    second_[bucket.index] = false;
    all_reduce(left_[bucket.index].data(), left_[bucket.index].size(), TUTTI_FLOAT32, stream);
  }

  bool proceed(const Bucket& bucket, tutti_stream_t stream) override {
    if (!second_[bucket.index] && right_[bucket.index].size() > 0) {
      second_[bucket.index] = true;
      project(bucket);
      all_reduce(right_[bucket.index].data(), right_[bucket.index].size(), TUTTI_FLOAT32, stream);
      return false;
    }
    visit(bucket, [&](const Tensor& tensor, Block gradient, Block left, Block right) {
      if (is_thin(tensor))
        multiply(left, right, gradient, {.transpose_right = true});
      else
        std::copy(left.data, left.data + tensor.count(), gradient.data);
    });
    return true;
  }

  double wire_bytes(const Bucket& bucket) const override {
    return all_reduce_bytes(left_[bucket.index].size() + right_[bucket.index].size(), sizeof(float));
  }

  std::vector<std::span<float>> state() override {
    std::vector<std::span<float>> all(residuals_.begin(), residuals_.end());
    for (BackendVector<float>& right : right_) all.emplace_back(right.data(), right.size());
    return all;
  }

 private:
  bool is_thin(const Tensor& tensor) const {
    return tensor.rows > 1 && rank_limit_ * (tensor.rows + tensor.columns) < tensor.count();
  }

  /// Calls `act` for each tensor, with its gradient and its parts of the two buffers.
  template <class Act>
  void visit(const Bucket& bucket, const Act& act) {
    float* left = left_[bucket.index].data();
    float* right = right_[bucket.index].data();
    for (const Tensor& tensor : bucket.tensors) {
      const Block gradient{bucket.values.data() + tensor.offset, tensor.rows, tensor.columns, tensor.columns};
      const bool thin = is_thin(tensor);
      act(tensor, gradient, Block{left, tensor.rows, rank_limit_, rank_limit_},
          Block{right, tensor.columns, rank_limit_, rank_limit_});
      left += thin ? tensor.rows * rank_limit_ : tensor.count();
      right += thin ? tensor.columns * rank_limit_ : 0;
    }
  }

  /// Q = M^T P of this rank. The part of M that P Q^T lacks is the residual.
  void project(const Bucket& bucket) {
    visit(bucket, [&](const Tensor& tensor, Block gradient, Block left, Block right) {
      if (!is_thin(tensor)) return;
      make_orthonormal(left);
      multiply(gradient, left, right, {.transpose_left = true});
      Block residual = gradient;
      residual.data = residuals_[bucket.index].data() + tensor.offset;
      std::copy(gradient.data, gradient.data + tensor.count(), residual.data);
      multiply(left, right, residual, {.transpose_right = true, .accumulate = true, .scale = -1});
    });
  }

  size_t rank_limit_;
  std::vector<BackendVector<float>> left_;   ///< by bucket: the P of its matrices, and all other tensors
  std::vector<BackendVector<float>> right_;  ///< by bucket: the Q of its matrices
  std::vector<std::vector<float>> residuals_;
  std::vector<bool> second_;  ///< by bucket: the sum of the Qs is in progress
};

}  // namespace

std::unique_ptr<Reduction> make_reduction(const CompressionOptions& options,
                                          const std::vector<Bucket>& buckets, tutti_comm_t* comm,
                                          const BackendPointer& backend) {
  if (options.name == "none") return std::make_unique<Plain>(comm);
  if (options.name == "f16") return std::make_unique<Half>(comm, buckets, backend, TUTTI_FLOAT16);
  if (options.name == "bf16") return std::make_unique<Half>(comm, buckets, backend, TUTTI_BFLOAT16);
  if (options.name == "topk") return std::make_unique<TopK>(comm, buckets, backend, options.share);
  if (options.name == "powersgd") return std::make_unique<PowerSgd>(comm, buckets, backend, options);
  throw Error("unknown compression '" + options.name + "': none, f16, bf16, topk or powersgd");
}

}  // namespace tutti::trainer
