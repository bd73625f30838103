// What nccl-tests does: one process a rank, kernels that fill the buffers and check the results on the
// device, over collectives, types and operators.
//
// Usage: collectives RANKS [COUNT]
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "check.h"

namespace {

// ---- values: small enough that every operator is exact in every type --------------------------------

__host__ __device__ inline uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

template <class T>
struct Convert {
  static __device__ T from(float value) { return static_cast<T>(value); }
  static __device__ float to(T value) { return static_cast<float>(value); }
};
template <>
struct Convert<__half> {
  static __device__ __half from(float value) { return __float2half(value); }
  static __device__ float to(__half value) { return __half2float(value); }
};
template <>
struct Convert<__nv_bfloat16> {
  static __device__ __nv_bfloat16 from(float value) { return __float2bfloat16(value); }
  static __device__ float to(__nv_bfloat16 value) { return __bfloat162float(value); }
};

__device__ float value_of(int rank, size_t index, int seed) {
  return static_cast<float>(
      1 + mix(static_cast<uint32_t>(index) * 31u + static_cast<uint32_t>(rank * 7 + seed)) % 3);
}

template <class T>
__global__ void fill(T* data, size_t count, int rank, size_t first, int seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    data[i] = Convert<T>::from(value_of(rank, first + i, seed));
}

__device__ float combined(int op, int ranks, size_t index, int seed) {
  float result = value_of(0, index, seed);
  for (int rank = 1; rank < ranks; ++rank) {
    const float value = value_of(rank, index, seed);
    switch (op) {
      case ncclSum:
      case ncclAvg: result += value; break;
      case ncclProd: result *= value; break;
      case ncclMax: result = fmaxf(result, value); break;
      default: result = fminf(result, value); break;
    }
  }
  return op == ncclAvg ? result / static_cast<float>(ranks) : result;
}

/// What `data[i]` should be: combined over all ranks, or what one rank has filled in (op < 0).
template <class T>
__global__ void check(const T* data, size_t count, int op, int ranks, int rank, size_t first, int seed,
                      unsigned long long* wrong) {
  __shared__ unsigned in_block;
  if (threadIdx.x == 0) in_block = 0;
  __syncthreads();
  unsigned mine = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    const float wanted = op < 0 ? value_of(rank, first + i, seed) : combined(op, ranks, first + i, seed);
    // An average of integers is cut off; of small floats it is rounded.
    const float rounded = Convert<T>::to(Convert<T>::from(wanted));
    if (fabsf(Convert<T>::to(data[i]) - rounded) > 0.01f * fabsf(rounded)) ++mine;
  }
  for (int offset = warpSize / 2; offset > 0; offset /= 2)
    mine += __shfl_down_sync(0xffffffffu, mine, offset);
  if (threadIdx.x % warpSize == 0) atomicAdd(&in_block, mine);
  __syncthreads();
  if (threadIdx.x == 0 && in_block > 0) atomicAdd(wrong, static_cast<unsigned long long>(in_block));
}

// ---- one rank ---------------------------------------------------------------------------------------

constexpr int kBlocks = 2;
constexpr int kThreads = 64;

struct Rank {
  int rank;
  int ranks;
  ncclComm_t comm;
  cudaStream_t stream;
  void* send;
  void* receive;
  unsigned long long* wrong;
  int tests = 0;
  int failed = 0;

  void finish(const char* collective, const char* type, const char* op) {
    unsigned long long count = 0;
    CUDA_CHECK(cudaMemcpyAsync(&count, wrong, sizeof count, cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemsetAsync(wrong, 0, sizeof count, stream));
    ++tests;
    if (count == 0) return;
    ++failed;
    std::fprintf(stderr, "rank %d: %s %s %s: %llu elements are wrong\n", rank, collective, type, op, count);
  }
};

template <class T>
void test_reductions(Rank& r, ncclDataType_t type, const char* type_name, size_t count, int seed) {
  static const char* const kOps[] = {"sum", "prod", "max", "min", "avg"};
  const auto ranks = static_cast<size_t>(r.ranks);
  const auto own = static_cast<size_t>(r.rank);
  T* const send = static_cast<T*>(r.send);
  T* const receive = static_cast<T*>(r.receive);
  for (int op = ncclSum; op <= ncclAvg; ++op) {
    const auto operation = static_cast<ncclRedOp_t>(op);
    const int root = op % r.ranks;
    fill<T><<<kBlocks, kThreads, 0, r.stream>>>(send, count * ranks, r.rank, 0, seed + op);
    NCCL_CHECK(ncclAllReduce(send, receive, count, type, operation, r.comm, r.stream));
    check<T><<<kBlocks, kThreads, 0, r.stream>>>(receive, count, op, r.ranks, r.rank, 0, seed + op, r.wrong);
    r.finish("all_reduce", type_name, kOps[op]);
    NCCL_CHECK(ncclReduceScatter(send, receive, count, type, operation, r.comm, r.stream));
    check<T><<<kBlocks, kThreads, 0, r.stream>>>(receive, count, op, r.ranks, r.rank, own * count, seed + op,
                                                 r.wrong);
    r.finish("reduce_scatter", type_name, kOps[op]);
    NCCL_CHECK(ncclReduce(send, receive, count, type, operation, root, r.comm, r.stream));
    if (r.rank == root)
      check<T>
          <<<kBlocks, kThreads, 0, r.stream>>>(receive, count, op, r.ranks, r.rank, 0, seed + op, r.wrong);
    r.finish("reduce", type_name, kOps[op]);
    // In place.
    NCCL_CHECK(ncclAllReduce(send, send, count, type, operation, r.comm, r.stream));
    check<T><<<kBlocks, kThreads, 0, r.stream>>>(send, count, op, r.ranks, r.rank, 0, seed + op, r.wrong);
    r.finish("all_reduce in place", type_name, kOps[op]);
  }
}

template <class T>
void test_moves(Rank& r, ncclDataType_t type, const char* type_name, size_t count, int seed) {
  T* const send = static_cast<T*>(r.send);
  T* const receive = static_cast<T*>(r.receive);
  const int root = r.ranks - 1;
  fill<T><<<kBlocks, kThreads, 0, r.stream>>>(send, count * r.ranks, r.rank, 0, seed);
  NCCL_CHECK(ncclAllGather(send, receive, count, type, r.comm, r.stream));
  for (int from = 0; from < r.ranks; ++from)
    check<T><<<kBlocks, kThreads, 0, r.stream>>>(receive + from * count, count, -1, r.ranks, from, 0, seed,
                                                 r.wrong);
  r.finish("all_gather", type_name, "");
  NCCL_CHECK(ncclBroadcast(send, receive, count, type, root, r.comm, r.stream));
  check<T><<<kBlocks, kThreads, 0, r.stream>>>(receive, count, -1, r.ranks, root, 0, seed, r.wrong);
  r.finish("broadcast", type_name, "");
  NCCL_CHECK(ncclGroupStart());
  for (int peer = 0; peer < r.ranks; ++peer) {
    NCCL_CHECK(ncclSend(send + peer * count, count, type, peer, r.comm, r.stream));
    NCCL_CHECK(ncclRecv(receive + peer * count, count, type, peer, r.comm, r.stream));
  }
  NCCL_CHECK(ncclGroupEnd());
  for (int from = 0; from < r.ranks; ++from) {
    check<T><<<kBlocks, kThreads, 0, r.stream>>>(receive + from * count, count, -1, r.ranks, from,
                                                 static_cast<size_t>(r.rank) * count, seed, r.wrong);
  }
  r.finish("alltoall", type_name, "");
}

template <class T>
void test_type(Rank& r, ncclDataType_t type, const char* name, size_t count) {
  test_reductions<T>(r, type, name, count, static_cast<int>(type) * 100);
  test_moves<T>(r, type, name, count, static_cast<int>(type) * 100 + 50);
}

int rank_main(int rank, int ranks, ncclUniqueId id, size_t count) {
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  CUDA_CHECK(cudaSetDevice(rank % devices));
  Rank r{rank, ranks, nullptr, nullptr, nullptr, nullptr, nullptr};
  CUDA_CHECK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaMalloc(&r.send, count * ranks * 8));
  CUDA_CHECK(cudaMalloc(&r.receive, count * ranks * 8));
  CUDA_CHECK(cudaMalloc(&r.wrong, sizeof(unsigned long long)));
  CUDA_CHECK(cudaMemset(r.wrong, 0, sizeof(unsigned long long)));
  NCCL_CHECK(ncclCommInitRank(&r.comm, ranks, id, rank));
  test_type<int8_t>(r, ncclInt8, "int8", count);
  test_type<uint32_t>(r, ncclUint32, "uint32", count);
  test_type<int64_t>(r, ncclInt64, "int64", count);
  test_type<float>(r, ncclFloat, "float", count);
  test_type<double>(r, ncclDouble, "double", count);
  test_type<__half>(r, ncclHalf, "half", count);
  test_type<__nv_bfloat16>(r, ncclBfloat16, "bfloat16", count);
  NCCL_CHECK(ncclCommDestroy(r.comm));
  CUDA_CHECK(cudaFree(r.send));
  CUDA_CHECK(cudaFree(r.receive));
  CUDA_CHECK(cudaFree(r.wrong));
  CUDA_CHECK(cudaStreamDestroy(r.stream));
  if (rank == 0) std::printf("%d calls checked on %d ranks, %d wrong\n", r.tests, ranks, r.failed);
  return r.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const size_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 300;
  return run_ranks(ranks,
                   [&](int rank, int size, ncclUniqueId id) { return rank_main(rank, size, id, count); });
}
