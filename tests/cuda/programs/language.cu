// What kernels are made of, each against the host: arithmetic of all widths, conversions, shared and local
// memory, shuffles and votes, atomics, divergence, calls, cooperative groups; and the runtime's ways to
// allocate, copy and order.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "check.h"

namespace cg = cooperative_groups;

namespace {

int wrong = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++wrong;
  std::fprintf(stderr, "wrong: %s\n", what);
}

// ---- the same function on the host and on the device -------------------------------------------------

struct Integers {
  template <class T>
  __host__ __device__ static T run(T a, T b) {
    const T divisor = b == 0 ? T{3} : b;
    T x = static_cast<T>(a * 7 + b);
    x = static_cast<T>(x ^ static_cast<T>(a >> 3) ^ static_cast<T>(b << 2));
    x = static_cast<T>(x + a / divisor - a % divisor);
    for (T i = 0; i < 5; ++i) x = static_cast<T>(x > b ? x - i : x + b + i);
    return static_cast<T>(~x & (a | b));
  }
};

struct Floats {
  template <class T>
  __host__ __device__ static T run(T a, T b) {
    T x = a * b + T{0.5};
    x = x / (b * b + T{1}) - a;
    if (x < b) x = -x;
    x = sqrt(fabs(x)) + fmin(a, b) * fmax(a, b);
    return floor(x * T{8}) + static_cast<T>(static_cast<int>(a)) + trunc(b);
  }
};

template <class Function, class T>
__global__ void apply(const T* a, const T* b, T* result, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) result[i] = Function::run(a[i], b[i]);
}

template <class Function, class T>
void compare(const char* what, T scale) {
  constexpr int kCount = 200;
  std::vector<T> a(kCount);
  std::vector<T> b(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = static_cast<T>(scale * static_cast<T>(i * 37 % 101 - 50));
    b[i] = static_cast<T>(static_cast<T>(i * 53 % 17) - T{8});
  }
  T* memory = nullptr;
  CUDA_CHECK(cudaMalloc(&memory, 3 * kCount * sizeof(T)));
  CUDA_CHECK(cudaMemcpy(memory, a.data(), kCount * sizeof(T), cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaMemcpy(memory + kCount, b.data(), kCount * sizeof(T), cudaMemcpyHostToDevice));
  apply<Function><<<2, 128>>>(memory, memory + kCount, memory + 2 * kCount, kCount);
  std::vector<T> result(kCount);
  CUDA_CHECK(cudaMemcpy(result.data(), memory + 2 * kCount, kCount * sizeof(T), cudaMemcpyDeviceToHost));
  int differ = 0;
  for (int i = 0; i < kCount; ++i) {
    const T wanted = Function::run(a[i], b[i]);
    const double difference = std::fabs(static_cast<double>(result[i]) - static_cast<double>(wanted));
    // The device may fuse a multiplication with an addition.
    if (difference > 1e-5 * std::fabs(static_cast<double>(wanted))) ++differ;
  }
  expect(differ == 0, what);
  CUDA_CHECK(cudaFree(memory));
}

__global__ void wide(uint64_t* out) {
  unsigned __int128 x = static_cast<unsigned __int128>(threadIdx.x) << 70 | 12345;
  x = x * x + x / 7 - (x >> 3);
  out[2 * threadIdx.x] = static_cast<uint64_t>(x);
  out[2 * threadIdx.x + 1] = static_cast<uint64_t>(x >> 64);
}

/// Carries go from one instruction to the next; of a subtraction the carry means that nothing was borrowed.
void test_128_bits() {
  uint64_t* out = nullptr;
  CUDA_CHECK(cudaMallocManaged(&out, 32 * 16));
  wide<<<1, 32>>>(out);
  CUDA_CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 32; ++i) {
    unsigned __int128 x = static_cast<unsigned __int128>(i) << 70 | 12345;
    x = x * x + x / 7 - (x >> 3);
    expect(out[2 * i] == static_cast<uint64_t>(x) && out[2 * i + 1] == static_cast<uint64_t>(x >> 64),
           "128 bits");
  }
  CUDA_CHECK(cudaFree(out));
}

// ---- warps and blocks ------------------------------------------------------------------------------

__device__ int recursive_sum(int n) {
  return n <= 0 ? 0 : n + recursive_sum(n - 1);
}

using Operation = int (*)(int);
__device__ int twice(int x) {
  return 2 * x;
}
__device__ int square(int x) {
  return x * x;
}
__device__ Operation operations[2] = {twice, square};

__constant__ int table[8] = {1, 2, 3, 5, 8, 13, 21, 34};
__device__ unsigned long long total = 5;
__managed__ int counter = 7;

__global__ void warps(int* out) {
  extern __shared__ int dynamic[];
  __shared__ int fixed[64];
  const int lane = threadIdx.x % 32;
  fixed[threadIdx.x] = threadIdx.x;
  dynamic[threadIdx.x] = 100 + threadIdx.x;
  __syncthreads();
  int* const mine = out + threadIdx.x * 16;
  mine[0] = __shfl_up_sync(0xffffffffu, lane, 3);
  mine[1] = __shfl_xor_sync(0xffffffffu, lane, 5, 8);
  mine[2] = __shfl_sync(0xffffffffu, lane * 2, 9);
  mine[3] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
  mine[4] = static_cast<int>(__match_any_sync(0xffffffffu, lane / 10));
  mine[5] = __reduce_add_sync(0xffffffffu, lane);
  mine[6] = fixed[63 - threadIdx.x] + dynamic[threadIdx.x ^ 1];
  int local[20];
  for (int i = 0; i < 20; ++i) local[(i * 7 + lane) % 20] = i;
  mine[7] = local[lane % 20];
  mine[8] = recursive_sum(lane);
  mine[9] = operations[lane % 2](lane);
  mine[10] = table[lane % 8];
  // Lanes that take different ways, and meet in groups of their own.
  if (lane < 16) {
    mine[11] = __shfl_sync(0x0000ffffu, lane, 4);
  } else {
    mine[11] = __shfl_sync(0xffff0000u, lane, 20);
  }
  __syncwarp();
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  mine[12] = cg::reduce(warp, lane, cg::greater<int>());
  mine[13] = __syncthreads_count(lane < 5);
  atomicAdd(&total, 1ull);
  if (lane == 0) atomicAdd(&counter, 1);
  mine[14] = __popc(lane) + __clz(lane + 1) * 100 + __ffs(lane) * 10000;
  mine[15] = static_cast<int>(__byte_perm(0x04030201u, 0x08070605u, 0x7531u) ^ __brev(lane));
}

void test_warps() {
  constexpr int kThreads = 64;
  int* out = nullptr;
  CUDA_CHECK(cudaMallocManaged(&out, kThreads * 16 * sizeof(int)));
  warps<<<1, kThreads, kThreads * sizeof(int)>>>(out);
  CUDA_CHECK(cudaDeviceSynchronize());
  const int kTable[8] = {1, 2, 3, 5, 8, 13, 21, 34};
  for (int t = 0; t < kThreads; ++t) {
    const int lane = t % 32;
    const int* mine = out + t * 16;
    expect(mine[0] == (lane < 3 ? lane : lane - 3), "shfl_up");
    expect(mine[1] == (lane ^ 5), "shfl_xor");
    expect(mine[2] == 18, "shfl");
    expect(mine[3] == 0x49249249, "ballot");
    expect(static_cast<unsigned>(mine[4]) == (lane < 30 ? 0x3ffu << (lane / 10 * 10) : 0xc0000000u),
           "match_any");
    expect(mine[5] == 496, "reduce_add");
    expect(mine[6] == 63 - t + 100 + (t ^ 1), "shared memory");
    int local[20];
    for (int i = 0; i < 20; ++i) local[(i * 7 + lane) % 20] = i;
    expect(mine[7] == local[lane % 20], "local memory");
    expect(mine[8] == lane * (lane + 1) / 2, "recursion");
    expect(mine[9] == (lane % 2 == 0 ? 2 * lane : lane * lane), "function pointers");
    expect(mine[10] == kTable[lane % 8], "constant memory");
    expect(mine[11] == (lane < 16 ? 4 : 20), "shuffles of diverged lanes");
    expect(mine[12] == 31, "cooperative reduce");
    expect(mine[13] == 10, "syncthreads_count");
    int leading = 0;
    for (int bit = 31; bit >= 0 && ((lane + 1) >> bit & 1) == 0; --bit) ++leading;
    int ones = 0;
    int first = 0;
    int reversed = 0;
    for (int bit = 31; bit >= 0; --bit) {
      ones += lane >> bit & 1;
      if ((lane >> bit & 1) != 0) first = bit + 1;
      if ((lane >> bit & 1) != 0) reversed |= static_cast<int>(1u << (31 - bit));
    }
    expect(mine[14] == ones + leading * 100 + first * 10000, "popc, clz, ffs");
    expect(mine[15] == (0x08060402 ^ reversed), "byte_perm, brev");
  }
  unsigned long long all = 0;
  CUDA_CHECK(cudaMemcpyFromSymbol(&all, total, sizeof all));
  expect(all == 5 + kThreads, "device variable");
  expect(counter == 7 + kThreads / 32, "managed variable");
  CUDA_CHECK(cudaFree(out));
}

__global__ void lock_in_turn(int* lock, int* value) {
  // Each thread waits for its turn: a lane that waits must not keep the others from running.
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *value = *value * 3 + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

__global__ void whole_grid(int* data, int count) {
  cg::grid_group grid = cg::this_grid();
  for (int i = grid.thread_rank(); i < count; i += grid.size()) data[i] = i;
  grid.sync();
  if (grid.thread_rank() == 0) {
    for (int i = 1; i < count; ++i) data[0] += data[i];
  }
}

__global__ void small_floats(const float* in, __half* half, __nv_bfloat16* brain, int count) {
  const int i = threadIdx.x;
  if (i >= count) return;
  half[i] = __hadd(__float2half(in[i]), __float2half(1.0f));
  brain[i] = __float2bfloat16(in[i]) * __float2bfloat16(2.0f);
}

void test_memory() {
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreate(&stream));
  // A lock, by the threads of one warp.
  int* words = nullptr;
  CUDA_CHECK(cudaMallocAsync(&words, 4096, stream));
  CUDA_CHECK(cudaMemsetAsync(words, 0, 4096, stream));
  lock_in_turn<<<1, 8, 0, stream>>>(words, words + 1);
  int value = 0;
  CUDA_CHECK(cudaMemcpyAsync(&value, words + 1, sizeof value, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  expect(value == 3280, "a lock");
  // A cooperative launch.
  int blocks = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, whole_grid, 64, 0));
  expect(blocks > 0, "occupancy");
  int count = 1000;
  void* arguments[] = {&words, &count};
  CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(whole_grid), dim3(3), dim3(64), arguments, 0,
                                         stream));
  CUDA_CHECK(cudaMemcpyAsync(&value, words, sizeof value, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  expect(value == 999 * 1000 / 2, "a barrier of the grid");
  CUDA_CHECK(cudaFreeAsync(words, stream));
  // A host function between a copy and the next.
  static int seen = 0;
  CUDA_CHECK(cudaLaunchHostFunc(
      stream, [](void* at) { *static_cast<int*>(at) = 42; }, &seen));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  expect(seen == 42, "a host function");
  // Rows with gaps.
  char* pitched = nullptr;
  size_t pitch = 0;
  CUDA_CHECK(cudaMallocPitch(&pitched, &pitch, 10, 4));
  CUDA_CHECK(cudaMemset2D(pitched, pitch, 'x', 10, 4));
  CUDA_CHECK(cudaMemcpy2D(pitched + 2, pitch, "abcdef", 3, 3, 2, cudaMemcpyHostToDevice));
  char rows[4][10];
  CUDA_CHECK(cudaMemcpy2D(rows, 10, pitched, pitch, 10, 4, cudaMemcpyDeviceToHost));
  expect(std::memcmp(rows[0], "xxabcxxxxx", 10) == 0 && std::memcmp(rows[1], "xxdefxxxxx", 10) == 0 &&
             std::memcmp(rows[2], "xxxxxxxxxx", 10) == 0,
         "copies of two dimensions");
  CUDA_CHECK(cudaFree(pitched));
  // Small floats.
  float in[32];
  for (int i = 0; i < 32; ++i) in[i] = static_cast<float>(i) * 0.37f - 3;
  float* device_in = nullptr;
  __half* half = nullptr;
  __nv_bfloat16* brain = nullptr;
  CUDA_CHECK(cudaMalloc(&device_in, sizeof in));
  CUDA_CHECK(cudaMallocManaged(&half, 64));
  CUDA_CHECK(cudaMallocManaged(&brain, 64));
  CUDA_CHECK(cudaMemcpy(device_in, in, sizeof in, cudaMemcpyHostToDevice));
  small_floats<<<1, 32>>>(device_in, half, brain, 32);
  CUDA_CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 32; ++i) {
    expect(__half2float(half[i]) == __half2float(__float2half(__half2float(__float2half(in[i])) + 1)),
           "half");
    expect(__bfloat162float(brain[i]) == 2 * __bfloat162float(__float2bfloat16(in[i])), "bfloat16");
  }
  CUDA_CHECK(cudaFree(device_in));
  CUDA_CHECK(cudaFree(half));
  CUDA_CHECK(cudaFree(brain));
  CUDA_CHECK(cudaStreamDestroy(stream));
}

void test_errors() {
  expect(cudaMalloc(nullptr, 4) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue,
         "an error is noted");
  expect(cudaGetLastError() == cudaSuccess, "an error is noted once");
  warps<<<1, 2000>>>(nullptr);
  expect(cudaGetLastError() == cudaErrorInvalidValue, "too many threads are refused");
  cudaPointerAttributes attributes;
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, &wrong));
  expect(attributes.type == cudaMemoryTypeUnregistered, "host memory is unregistered");
}

}  // namespace

int main() {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  expect(properties.warpSize == 32 && properties.major == 9, "device properties");
  compare<Integers, int8_t>("int8", 1);
  compare<Integers, uint8_t>("uint8", 1);
  compare<Integers, int16_t>("int16", 300);
  compare<Integers, uint16_t>("uint16", 300);
  compare<Integers, int32_t>("int32", 12345);
  compare<Integers, uint32_t>("uint32", 12345);
  compare<Integers, int64_t>("int64", 123456789012ll);
  compare<Integers, uint64_t>("uint64", 123456789012ll);
  compare<Floats, float>("float", 0.37f);
  compare<Floats, double>("double", 0.37);
  test_128_bits();
  test_warps();
  test_memory();
  test_errors();
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
