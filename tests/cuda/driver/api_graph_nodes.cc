// The driver's functions that make graphs node by node, and look into them.
#include <algorithm>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/streams.h"
#include "tests/cuda/driver/tasks.h"

using fake_cuda::Graph;
using fake_cuda::GraphExec;
using fake_cuda::GraphNode;
using fake_cuda::machine;
using fake_cuda::Node;

namespace {

GraphNode* handle_of(Graph& graph, size_t index) {
  std::unique_ptr<GraphNode>& handle = graph.handles[index];
  if (handle == nullptr) handle = std::make_unique<GraphNode>(GraphNode{&graph, index});
  return handle.get();
}

CUresult add_node(CUgraphNode* result, CUgraph handle, const CUgraphNode* needs, size_t count,
                  fake_cuda::Task task) {
  Graph* graph = machine().graphs.find(handle);
  if (graph == nullptr || result == nullptr || (count > 0 && needs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  Node node;
  node.task = std::move(task);
  for (size_t i = 0; i < count; ++i) {
    const auto* need = reinterpret_cast<const GraphNode*>(needs[i]);
    if (need == nullptr || need->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    node.dependencies.push_back(need->index);
  }
  graph->nodes.push_back(std::move(node));
  *result = reinterpret_cast<CUgraphNode>(handle_of(*graph, graph->nodes.size() - 1));
  return CUDA_SUCCESS;
}

CUgraphNodeType type_of(const Node& node) {
  if (std::holds_alternative<fake_cuda::KernelTask>(node.task)) return CU_GRAPH_NODE_TYPE_KERNEL;
  if (std::holds_alternative<fake_cuda::CopyTask>(node.task)) return CU_GRAPH_NODE_TYPE_MEMCPY;
  if (std::holds_alternative<fake_cuda::FillTask>(node.task)) return CU_GRAPH_NODE_TYPE_MEMSET;
  if (std::holds_alternative<fake_cuda::HostTask>(node.task)) return CU_GRAPH_NODE_TYPE_HOST;
  if (std::holds_alternative<fake_cuda::ValueTask>(node.task)) return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  return CU_GRAPH_NODE_TYPE_EMPTY;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
  FAKE_CALL(cuGraphCreate);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *graph = reinterpret_cast<CUgraph>(machine().graphs.add(std::make_unique<Graph>()));
  return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* needs, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS* wish) {
  FAKE_CALL_IN_CONTEXT(cuGraphAddKernelNode);
  CUlaunchConfig config{};
  config.gridDimX = wish->gridDimX;
  config.gridDimY = wish->gridDimY;
  config.gridDimZ = wish->gridDimZ;
  config.blockDimX = wish->blockDimX;
  config.blockDimY = wish->blockDimY;
  config.blockDimZ = wish->blockDimZ;
  config.sharedMemBytes = wish->sharedMemBytes;
  fake_cuda::KernelTask task;
  const CUfunction function = wish->func != nullptr ? wish->func : reinterpret_cast<CUfunction>(wish->kern);
  const CUresult made =
      fake_cuda::make_kernel_task(config, function, wish->kernelParams, wish->extra, *context, task);
  return made == CUDA_SUCCESS ? add_node(node, graph, needs, count, std::move(task)) : made;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* needs, size_t count,
                              const CUDA_MEMCPY3D* copy, CUcontext /*context*/) {
  FAKE_CALL(cuGraphAddMemcpyNode);
  fake_cuda::CopyTask task;
  const CUresult made = fake_cuda::make_copy_task(*copy, task);
  return made == CUDA_SUCCESS ? add_node(node, graph, needs, count, std::move(task)) : made;
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* needs, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* wish, CUcontext /*context*/) {
  FAKE_CALL(cuGraphAddMemsetNode);
  const fake_cuda::FillTask task{.target = wish->dst,
                                 .bytes = wish->width * wish->elementSize,
                                 .value = wish->value,
                                 .value_bytes = wish->elementSize,
                                 .rows = wish->height,
                                 .pitch = wish->pitch};
  return add_node(node, graph, needs, count, task);
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* needs, size_t count,
                            const CUDA_HOST_NODE_PARAMS* wish) {
  FAKE_CALL(cuGraphAddHostNode);
  return add_node(node, graph, needs, count,
                  fake_cuda::HostTask{.function = wish->fn, .argument = wish->userData});
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* needs, size_t count) {
  FAKE_CALL(cuGraphAddEmptyNode);
  return add_node(node, graph, needs, count, fake_cuda::EmptyTask{});
}

/// The child's nodes become the graph's, after the needs and before an empty node that stands for all of
/// them.
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph handle, const CUgraphNode* needs, size_t count,
                                  CUgraph child_handle) {
  FAKE_CALL(cuGraphAddChildGraphNode);
  Graph* graph = machine().graphs.find(handle);
  const Graph* child = machine().graphs.find(child_handle);
  if (graph == nullptr || child == nullptr || graph == child) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> ends(needs, needs + count);
  const size_t first = graph->nodes.size();
  for (const Node& copied : child->nodes) {
    Node own = copied;
    for (size_t& need : own.dependencies) need += first;
    for (size_t i = 0; i < count; ++i)
      own.dependencies.push_back(reinterpret_cast<const GraphNode*>(needs[i])->index);
    graph->nodes.push_back(std::move(own));
    ends.push_back(reinterpret_cast<CUgraphNode>(handle_of(*graph, graph->nodes.size() - 1)));
  }
  return add_node(node, handle, ends.data(), ends.size(), fake_cuda::EmptyTask{});
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  FAKE_CALL(cuGraphGetNodes);
  Graph* graph = machine().graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count; ++i)
      nodes[i] = i < graph->nodes.size() ? reinterpret_cast<CUgraphNode>(handle_of(*graph, i)) : nullptr;
    *count = std::min(*count, graph->nodes.size());
  } else {
    *count = graph->nodes.size();
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  FAKE_CALL(cuGraphNodeGetType);
  const auto* node = reinterpret_cast<const GraphNode*>(handle);
  *type = type_of(node->graph->nodes[node->index]);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph handle) {
  FAKE_CALL(cuGraphClone);
  const Graph* graph = machine().graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto copy = std::make_unique<Graph>();
  copy->nodes = graph->nodes;
  *clone = reinterpret_cast<CUgraph>(machine().graphs.add(std::move(copy)));
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream /*stream*/) {
  FAKE_CALL(cuGraphUpload);
  return machine().executables.find(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// Takes the new graph's nodes, where the two have the same form.
CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  FAKE_CALL(cuGraphExecUpdate);
  GraphExec* executable = machine().executables.find(handle);
  const Graph* graph = machine().graphs.find(graph_handle);
  if (executable == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const fake_cuda::Nodes& old = *executable->nodes;
  const bool same =
      old.size() == graph->nodes.size() &&
      std::equal(old.begin(), old.end(), graph->nodes.begin(), [](const Node& a, const Node& b) {
        return a.task.index() == b.task.index() && a.dependencies == b.dependencies;
      });
  if (info != nullptr) {
    *info = {};
    info->result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  executable->nodes = std::make_shared<const fake_cuda::Nodes>(graph->nodes);
  return CUDA_SUCCESS;
}

}  // extern "C"
