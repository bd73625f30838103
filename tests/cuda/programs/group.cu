// One process and one thread that drives several GPUs: communicators from ncclCommInitAll, collectives and a
// ring of sends and receives in groups, timed by events.
//
// Usage: group DEVICES
#include "check.h"

namespace {

constexpr size_t kCount = 1000;

__global__ void set_all(float* data, size_t count, float value) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i < count) data[i] = value + static_cast<float>(i % 10);
}

__global__ void count_wrong(const float* data, size_t count, float value, float factor, int* wrong) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  const bool bad = i < count && data[i] != value + factor * static_cast<float>(i % 10);
  const unsigned votes = __ballot_sync(0xffffffffu, bad);
  if (threadIdx.x % 32 == 0 && votes != 0) atomicAdd(wrong, __popc(votes));
}

struct Device {
  cudaStream_t stream;
  cudaEvent_t begin;
  cudaEvent_t end;
  float* send;
  float* receive;
  int* wrong;  // managed: the host reads it
};

constexpr int kThreads = 128;
constexpr int kBlocks = (kCount + kThreads - 1) / kThreads;

int report(std::vector<Device>& devices, const char* what) {
  int wrong = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    CUDA_CHECK(cudaSetDevice(static_cast<int>(i)));
    CUDA_CHECK(cudaStreamSynchronize(devices[i].stream));
    wrong += *devices[i].wrong;
    *devices[i].wrong = 0;
  }
  if (wrong != 0) std::fprintf(stderr, "%s: %d elements are wrong\n", what, wrong);
  return wrong;
}

void open(Device& device, int number, int count) {
  CUDA_CHECK(cudaSetDevice(number));
  CUDA_CHECK(cudaStreamCreate(&device.stream));
  CUDA_CHECK(cudaEventCreate(&device.begin));
  CUDA_CHECK(cudaEventCreate(&device.end));
  CUDA_CHECK(cudaMalloc(&device.send, kCount * sizeof(float)));
  CUDA_CHECK(cudaMalloc(&device.receive, kCount * count * sizeof(float)));
  CUDA_CHECK(cudaMallocManaged(&device.wrong, sizeof(int)));
  *device.wrong = 0;
}

void close(Device& device, int number, ncclComm_t comm) {
  CUDA_CHECK(cudaSetDevice(number));
  NCCL_CHECK(ncclCommDestroy(comm));
  CUDA_CHECK(cudaFree(device.send));
  CUDA_CHECK(cudaFree(device.receive));
  CUDA_CHECK(cudaFree(device.wrong));
  CUDA_CHECK(cudaEventDestroy(device.begin));
  CUDA_CHECK(cudaEventDestroy(device.end));
  CUDA_CHECK(cudaStreamDestroy(device.stream));
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 2;
  std::vector<Device> devices(count);
  std::vector<ncclComm_t> comms(count);
  for (int i = 0; i < count; ++i) open(devices[i], i, count);
  NCCL_CHECK(ncclCommInitAll(comms.data(), count, nullptr));
  int wrong = 0;

  for (int i = 0; i < count; ++i) {
    CUDA_CHECK(cudaSetDevice(i));
    set_all<<<kBlocks, kThreads, 0, devices[i].stream>>>(devices[i].send, kCount, static_cast<float>(i));
    CUDA_CHECK(cudaEventRecord(devices[i].begin, devices[i].stream));
  }
  NCCL_CHECK(ncclGroupStart());
  for (int i = 0; i < count; ++i)
    NCCL_CHECK(ncclAllReduce(devices[i].send, devices[i].receive, kCount, ncclFloat, ncclSum, comms[i],
                             devices[i].stream));
  NCCL_CHECK(ncclGroupEnd());
  const auto sum = static_cast<float>(count * (count - 1) / 2);
  for (int i = 0; i < count; ++i) {
    CUDA_CHECK(cudaSetDevice(i));
    CUDA_CHECK(cudaEventRecord(devices[i].end, devices[i].stream));
    count_wrong<<<kBlocks, kThreads, 0, devices[i].stream>>>(devices[i].receive, kCount, sum,
                                                             static_cast<float>(count), devices[i].wrong);
  }
  wrong += report(devices, "all_reduce");
  float milliseconds = -1;
  CUDA_CHECK(cudaSetDevice(0));
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, devices[0].begin, devices[0].end));
  wrong += milliseconds >= 0 ? 0 : 1;

  // Around the ring, and an all-gather, in one group.
  NCCL_CHECK(ncclGroupStart());
  for (int i = 0; i < count; ++i) {
    NCCL_CHECK(ncclSend(devices[i].send, kCount, ncclFloat, (i + 1) % count, comms[i], devices[i].stream));
    NCCL_CHECK(ncclRecv(devices[i].receive, kCount, ncclFloat, (i + count - 1) % count, comms[i],
                        devices[i].stream));
  }
  NCCL_CHECK(ncclGroupEnd());
  for (int i = 0; i < count; ++i) {
    CUDA_CHECK(cudaSetDevice(i));
    count_wrong<<<kBlocks, kThreads, 0, devices[i].stream>>>(
        devices[i].receive, kCount, static_cast<float>((i + count - 1) % count), 1.0f, devices[i].wrong);
  }
  wrong += report(devices, "ring");

  NCCL_CHECK(ncclGroupStart());
  for (int i = 0; i < count; ++i)
    NCCL_CHECK(
        ncclAllGather(devices[i].send, devices[i].receive, kCount, ncclFloat, comms[i], devices[i].stream));
  NCCL_CHECK(ncclGroupEnd());
  for (int i = 0; i < count; ++i) {
    CUDA_CHECK(cudaSetDevice(i));
    for (int from = 0; from < count; ++from) {
      count_wrong<<<kBlocks, kThreads, 0, devices[i].stream>>>(
          devices[i].receive + from * kCount, kCount, static_cast<float>(from), 1.0f, devices[i].wrong);
    }
  }
  wrong += report(devices, "all_gather");

  for (int i = 0; i < count; ++i) close(devices[i], i, comms[i]);
  std::printf("%d devices, %d wrong\n", count, wrong);
  return wrong == 0 ? 0 : 1;
}
