// Graphs: captured, or made node by node.
#include <cstring>

#include "tests/cuda/runtime/runtime.h"

using fake_cudart::device_pointer;
using fake_cudart::note;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  RUNTIME_CALL();
  return note(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  RUNTIME_CALL();
  return note(cuStreamEndCapture(stream, graph));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  RUNTIME_CALL();
  return note(cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)));
}
/// The graph under capture cannot be looked into. Without a capture there is nothing to fill in.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  RUNTIME_CALL();
  CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;
  if (const CUresult refused = cuStreamIsCapturing(stream, &now); refused != CUDA_SUCCESS)
    return note(refused);
  if (now == CU_STREAM_CAPTURE_STATUS_NONE) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  }
  if (edges != nullptr) return note(cudaErrorNotSupported);
  cuuint64_t number = 0;
  const CUresult result = cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                                 &number, graph, dependencies, count);
  if (id != nullptr) *id = number;
  return note(result);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  RUNTIME_CALL();
  return note(cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  RUNTIME_CALL();
  // What is freed or used by launches changes nothing here.
  constexpr unsigned long long kKnown =
      cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;
  return note(cuGraphInstantiateWithFlags(executable, graph, flags & ~kKnown));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuGraphUpload(executable, stream));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuGraphLaunch(executable, stream));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  RUNTIME_CALL();
  return note(cuGraphDestroy(graph));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  RUNTIME_CALL();
  return note(cuGraphExecDestroy(executable));
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  RUNTIME_CALL();
  static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
  return note(cuGraphExecUpdate(executable, graph, reinterpret_cast<CUgraphExecUpdateResultInfo*>(info)));
}

// ---- node by node ---------------------------------------------------------------------------------

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuGraphCreate(graph, flags));
}
cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  RUNTIME_CALL();
  return note(cuGraphClone(clone, graph));
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  RUNTIME_CALL();
  return note(cuGraphGetNodes(graph, nodes, count));
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  RUNTIME_CALL();
  return note(cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type)));
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* needs,
                                   size_t count, const cudaKernelNodeParams* wish) {
  RUNTIME_CALL();
  CUDA_KERNEL_NODE_PARAMS all{};
  if (const cudaError_t error = fake_cudart::find_kernel(wish->func, &all.func); error != cudaSuccess)
    return note(error);
  all.gridDimX = wish->gridDim.x;
  all.gridDimY = wish->gridDim.y;
  all.gridDimZ = wish->gridDim.z;
  all.blockDimX = wish->blockDim.x;
  all.blockDimY = wish->blockDim.y;
  all.blockDimZ = wish->blockDim.z;
  all.sharedMemBytes = wish->sharedMemBytes;
  all.kernelParams = wish->kernelParams;
  all.extra = wish->extra;
  return note(cuGraphAddKernelNode(node, graph, needs, count, &all));
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* needs,
                                     size_t count, void* to, const void* from, size_t bytes,
                                     cudaMemcpyKind /*kind*/) {
  RUNTIME_CALL();
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = device_pointer(from);
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = device_pointer(to);
  copy.WidthInBytes = bytes;
  copy.Height = 1;
  copy.Depth = 1;
  return note(cuGraphAddMemcpyNode(node, graph, needs, count, &copy, nullptr));
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* needs,
                                   size_t count, const cudaMemsetParams* wish) {
  RUNTIME_CALL();
  CUDA_MEMSET_NODE_PARAMS all{};
  all.dst = device_pointer(wish->dst);
  all.pitch = wish->pitch;
  all.value = wish->value;
  all.elementSize = wish->elementSize;
  all.width = wish->width;
  all.height = wish->height;
  return note(cuGraphAddMemsetNode(node, graph, needs, count, &all, nullptr));
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* needs,
                                 size_t count, const cudaHostNodeParams* wish) {
  RUNTIME_CALL();
  CUDA_HOST_NODE_PARAMS all{};
  all.fn = wish->fn;
  all.userData = wish->userData;
  return note(cuGraphAddHostNode(node, graph, needs, count, &all));
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* needs,
                                  size_t count) {
  RUNTIME_CALL();
  return note(cuGraphAddEmptyNode(node, graph, needs, count));
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* needs,
                                       size_t count, cudaGraph_t child) {
  RUNTIME_CALL();
  return note(cuGraphAddChildGraphNode(node, graph, needs, count, child));
}

}  // extern "C"
#pragma GCC visibility pop
