// Matrices of float32 and their product. The product is the one operation that needs a library: a BLAS, on
// the host here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace tutti::trainer {

/// A block of rows in another owner's row-major matrix: row i begins at data + i * stride.
struct Block {
  float* data = nullptr;
  size_t rows = 0;
  size_t columns = 0;
  size_t stride = 0;
};

class Matrix {
 public:
  Matrix() = default;
  Matrix(size_t rows, size_t columns) { resize(rows, columns); }

  /// Afterwards the contents are undefined, unless only the shape changes.
  void resize(size_t rows, size_t columns) {
    rows_ = rows;
    columns_ = columns;
    values_.resize(rows * columns);
  }
  void fill(float value) { std::fill(values_.begin(), values_.end(), value); }

  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  size_t size() const { return values_.size(); }
  float* data() { return values_.data(); }
  const float* data() const { return values_.data(); }
  float* row(size_t i) { return values_.data() + i * columns_; }
  const float* row(size_t i) const { return values_.data() + i * columns_; }
  /// For operands of `multiply`, which only reads them.
  Block block() const { return {const_cast<float*>(values_.data()), rows_, columns_, columns_}; }

 private:
  size_t rows_ = 0;
  size_t columns_ = 0;
  std::vector<float> values_;
};

struct ProductOptions {
  bool transpose_left = false;
  bool transpose_right = false;
  bool accumulate = false;  ///< add to the contents of `result`
  float scale = 1;
};

/// result = scale * left * right (+ result), with the operands transposed first if requested. Writes only
/// `result`. Runs in the calling thread alone, so that ranks do not compete for cores. Equal operands give
/// equal bits.
void multiply(Block left, Block right, Block result, ProductOptions options = {});

/// Computes the products of a model: `multiply`, or the same on a GPU (cuda_blas.h). Operands and result are
/// host memory. The result is there on return. May throw Error.
using Product = std::function<void(Block left, Block right, Block result, ProductOptions options)>;

}  // namespace tutti::trainer
