// Data-parallel training of a linear model: forward and backward passes on one stream, gradients all-reduced
// on another, events between them; first step by step, then as a captured graph. One process a rank.
//
// Usage: training RANKS
#include <cmath>

#include "check.h"

namespace {

constexpr int kInputs = 24;
constexpr int kOutputs = 8;
constexpr int kBatch = 16;  // of each rank
constexpr int kWeights = kInputs * kOutputs;
constexpr float kRate = 0.05f;
constexpr int kPlainSteps = 3;
constexpr int kGraphSteps = 5;

float input_of(int sample, int i) {
  return std::sin(static_cast<float>(sample * 13 + i * 7));
}
float target_of(int sample, int o) {
  return std::cos(static_cast<float>(sample * 5 + o * 3));
}

/// error = weights x input - target, one thread an output of a sample.
__global__ void forward(const float* weights, const float* inputs, const float* targets, float* errors,
                        float* loss) {
  __shared__ float tile[kInputs];
  const int sample = blockIdx.x;
  for (int i = threadIdx.x; i < kInputs; i += blockDim.x) tile[i] = inputs[sample * kInputs + i];
  __syncthreads();
  const int o = threadIdx.x;
  float error = 0;
  if (o < kOutputs) {
    for (int i = 0; i < kInputs; ++i) error += weights[o * kInputs + i] * tile[i];
    error -= targets[sample * kOutputs + o];
    errors[sample * kOutputs + o] = error;
  }
  float square = error * error;
  for (int offset = 16; offset > 0; offset /= 2) square += __shfl_xor_sync(0xffffffffu, square, offset);
  if (threadIdx.x == 0) atomicAdd(loss, square);
}

__global__ void backward(const float* inputs, const float* errors, float* gradients) {
  const int w = blockIdx.x * blockDim.x + threadIdx.x;
  if (w >= kWeights) return;
  float sum = 0;
  for (int sample = 0; sample < kBatch; ++sample)
    sum += errors[sample * kOutputs + w / kInputs] * inputs[sample * kInputs + w % kInputs];
  gradients[w] = sum / kBatch;
}

__global__ void update(float* weights, const float* gradients, float rate) {
  const int w = blockIdx.x * blockDim.x + threadIdx.x;
  if (w < kWeights) weights[w] -= rate * gradients[w];
}

/// The same on the host, over the samples of all ranks.
std::vector<float> train_on_host(int ranks) {
  std::vector<float> weights(kWeights, 0.0f);
  for (int step = 0; step < kPlainSteps + kGraphSteps; ++step) {
    std::vector<double> gradients(kWeights, 0.0);
    for (int sample = 0; sample < ranks * kBatch; ++sample) {
      for (int o = 0; o < kOutputs; ++o) {
        double error = -target_of(sample, o);
        for (int i = 0; i < kInputs; ++i) error += weights[o * kInputs + i] * input_of(sample, i);
        for (int i = 0; i < kInputs; ++i) gradients[o * kInputs + i] += error * input_of(sample, i);
      }
    }
    for (int w = 0; w < kWeights; ++w)
      weights[w] -= kRate * static_cast<float>(gradients[w] / (ranks * kBatch));
  }
  return weights;
}

struct Model {
  float* weights;
  float* inputs;
  float* targets;
  float* errors;
  float* gradients;
  float* loss;
  ncclComm_t comm;
  cudaStream_t compute;
  cudaStream_t communicate;
  cudaEvent_t backward_done;
  cudaEvent_t reduced;
};

void step(const Model& model) {
  CUDA_CHECK(cudaMemsetAsync(model.loss, 0, sizeof(float), model.compute));
  forward<<<kBatch, 32, 0, model.compute>>>(model.weights, model.inputs, model.targets, model.errors,
                                            model.loss);
  backward<<<(kWeights + 63) / 64, 64, 0, model.compute>>>(model.inputs, model.errors, model.gradients);
  CUDA_CHECK(cudaEventRecord(model.backward_done, model.compute));
  CUDA_CHECK(cudaStreamWaitEvent(model.communicate, model.backward_done, 0));
  NCCL_CHECK(ncclAllReduce(model.gradients, model.gradients, kWeights, ncclFloat, ncclAvg, model.comm,
                           model.communicate));
  NCCL_CHECK(ncclAllReduce(model.loss, model.loss, 1, ncclFloat, ncclSum, model.comm, model.communicate));
  CUDA_CHECK(cudaEventRecord(model.reduced, model.communicate));
  CUDA_CHECK(cudaStreamWaitEvent(model.compute, model.reduced, 0));
  update<<<(kWeights + 63) / 64, 64, 0, model.compute>>>(model.weights, model.gradients, kRate);
  CUDA_CHECK(cudaGetLastError());
}

float loss_of(const Model& model) {
  float loss = 0;
  CUDA_CHECK(cudaMemcpyAsync(&loss, model.loss, sizeof loss, cudaMemcpyDeviceToHost, model.compute));
  CUDA_CHECK(cudaStreamSynchronize(model.compute));
  return loss;
}

void load_samples(const Model& model, int rank) {
  float* staging = nullptr;  // pinned, so that the copies need not wait
  CUDA_CHECK(cudaMallocHost(&staging, kBatch * (kInputs + kOutputs) * sizeof(float)));
  for (int sample = 0; sample < kBatch; ++sample) {
    for (int i = 0; i < kInputs; ++i) staging[sample * kInputs + i] = input_of(rank * kBatch + sample, i);
    for (int o = 0; o < kOutputs; ++o)
      staging[kBatch * kInputs + sample * kOutputs + o] = target_of(rank * kBatch + sample, o);
  }
  CUDA_CHECK(cudaMemcpyAsync(model.inputs, staging, kBatch * kInputs * sizeof(float), cudaMemcpyHostToDevice,
                             model.compute));
  CUDA_CHECK(cudaMemcpyAsync(model.targets, staging + kBatch * kInputs, kBatch * kOutputs * sizeof(float),
                             cudaMemcpyHostToDevice, model.compute));
  CUDA_CHECK(cudaMemsetAsync(model.weights, 0, kWeights * sizeof(float), model.compute));
  CUDA_CHECK(cudaStreamSynchronize(model.compute));
  CUDA_CHECK(cudaFreeHost(staging));
}

int rank_main(int rank, int ranks, ncclUniqueId id) {
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  CUDA_CHECK(cudaSetDevice(rank % devices));
  Model model{};
  CUDA_CHECK(cudaMalloc(&model.weights, kWeights * sizeof(float)));
  CUDA_CHECK(cudaMalloc(&model.inputs, kBatch * kInputs * sizeof(float)));
  CUDA_CHECK(cudaMalloc(&model.targets, kBatch * kOutputs * sizeof(float)));
  CUDA_CHECK(cudaMalloc(&model.errors, kBatch * kOutputs * sizeof(float)));
  CUDA_CHECK(cudaMalloc(&model.gradients, kWeights * sizeof(float)));
  CUDA_CHECK(cudaMalloc(&model.loss, sizeof(float)));
  int least = 0;
  int greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_CHECK(cudaStreamCreateWithFlags(&model.compute, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithPriority(&model.communicate, cudaStreamNonBlocking, greatest));
  CUDA_CHECK(cudaEventCreateWithFlags(&model.backward_done, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventCreateWithFlags(&model.reduced, cudaEventDisableTiming));
  NCCL_CHECK(ncclCommInitRank(&model.comm, ranks, id, rank));
  load_samples(model, rank);

  step(model);
  const float first_loss = loss_of(model);
  for (int i = 1; i < kPlainSteps; ++i) step(model);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(model.compute, cudaStreamCaptureModeGlobal));
  step(model);
  CUDA_CHECK(cudaStreamEndCapture(model.compute, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < kGraphSteps; ++i) CUDA_CHECK(cudaGraphLaunch(executable, model.compute));
  const float last_loss = loss_of(model);

  std::vector<float> weights(kWeights);
  CUDA_CHECK(cudaMemcpy(weights.data(), model.weights, kWeights * sizeof(float), cudaMemcpyDeviceToHost));
  const std::vector<float> wanted = train_on_host(ranks);
  float worst = 0;
  for (int w = 0; w < kWeights; ++w) worst = std::fmax(worst, std::fabs(weights[w] - wanted[w]));
  const bool good = worst < 1e-4f && last_loss < first_loss;
  if (rank == 0 || !good)
    std::printf("rank %d: loss %g to %g, weights differ from the host's by %g\n", rank, first_loss, last_loss,
                worst);

  CUDA_CHECK(cudaGraphExecDestroy(executable));
  CUDA_CHECK(cudaGraphDestroy(graph));
  NCCL_CHECK(ncclCommDestroy(model.comm));
  CUDA_CHECK(cudaEventDestroy(model.backward_done));
  CUDA_CHECK(cudaEventDestroy(model.reduced));
  CUDA_CHECK(cudaStreamDestroy(model.compute));
  CUDA_CHECK(cudaStreamDestroy(model.communicate));
  for (float* memory :
       {model.weights, model.inputs, model.targets, model.errors, model.gradients, model.loss})
    CUDA_CHECK(cudaFree(memory));
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return run_ranks(argc > 1 ? std::atoi(argv[1]) : 2, rank_main);
}
