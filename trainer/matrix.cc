#include "trainer/matrix.h"

#include <cblas.h>

#include <cassert>

namespace tutti::trainer {

void multiply(Block left, Block right, Block result, ProductOptions options) {
  // Otherwise OpenBLAS starts a thread for each core in every rank.
  [[maybe_unused]] static const bool kOneThread = (openblas_set_num_threads(1), true);
  const size_t inner = options.transpose_left ? left.rows : left.columns;
  assert(inner == (options.transpose_right ? right.columns : right.rows));
  if (result.rows == 0 || result.columns == 0) return;
  const auto length = [](size_t n) { return static_cast<blasint>(std::max<size_t>(n, 1)); };
  cblas_sgemm(CblasRowMajor, options.transpose_left ? CblasTrans : CblasNoTrans,
              options.transpose_right ? CblasTrans : CblasNoTrans, static_cast<blasint>(result.rows),
              static_cast<blasint>(result.columns), static_cast<blasint>(inner), options.scale, left.data,
              length(left.stride), right.data, length(right.stride), options.accumulate ? 1.0F : 0.0F,
              result.data, length(result.stride));
}

}  // namespace tutti::trainer
