// The collectives of Backend: each checks its tensors, brings lists into one piece, and issues one call of
// tutti.
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "backend.h"
#include "group.h"

namespace tutti_torch {
namespace {

using c10d::OpType;

/// The only list of a list of lists.
const Tensors& only_list(const std::vector<Tensors>& lists, int size) {
  TORCH_CHECK(lists.size() == 1, "tutti: a call takes one list of tensors for each rank, but it got ",
              lists.size());
  TORCH_CHECK(lists[0].size() == static_cast<size_t>(size), "tutti: the list has ", lists[0].size(),
              " tensors, but the group has ", size, " ranks");
  return lists[0];
}

void check_same_type(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "tutti: the output is of type ", a.scalar_type(),
              ", the input of type ", b.scalar_type());
}

/// Elements that go to or come from each rank, for all_to_all.
std::vector<size_t> blocks_of(const at::Tensor& tensor, const Memory& memory,
                              const std::vector<int64_t>& splits, int size, const char* what) {
  std::vector<size_t> counts;
  if (splits.empty()) {
    TORCH_CHECK(tensor.dim() == 0 || tensor.size(0) % size == 0, "tutti: dimension 0 of the ", what, " has ",
                tensor.dim() == 0 ? 1 : tensor.size(0), " elements, which ", size,
                " ranks cannot share equally; pass split sizes");
    counts.assign(size, memory.count / size);
    return counts;
  }
  TORCH_CHECK(splits.size() == static_cast<size_t>(size), "tutti: there are ", splits.size(), " ", what,
              " split sizes for ", size, " ranks");
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  TORCH_CHECK(sum == rows, "tutti: the ", what, " split sizes add up to ", sum, ", but dimension 0 has ",
              rows, " elements");
  const size_t row = rows == 0 ? 0 : memory.count / static_cast<size_t>(rows);
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0, "tutti: the ", what, " split size ", split, " is negative");
    counts.push_back(static_cast<size_t>(split) * row);
  }
  return counts;
}

}  // namespace

void Backend::check_blocks(const at::Tensor& whole, const at::Tensor& part, const char* what) const {
  check_same_type(whole, part);
  TORCH_CHECK(whole.numel() == part.numel() * size_, "tutti: the ", what, " of ", size_, " blocks has ",
              whole.numel(), " elements; it must have ", size_, " times ", part.numel());
}

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_root(options.rootRank);
  const Memory memory = movable(only(tensors));
  return issue(
      {.type = OpType::BROADCAST,
       .title = "tutti:broadcast",
       .inputs = tensors,
       .outputs = tensors,
       .timeout = options.timeout,
       .is_async = options.asyncOp},
      [memory, root = static_cast<int>(options.rootRank)](tutti_comm_t* comm, tutti_stream_t stream) {
        return tutti_broadcast(memory.data, memory.data, memory.count, memory.type, root, comm, stream);
      });
}

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (only(tensors).layout() == at::kSparse) return allreduce_sparse(tensors, options);
  Memory memory = reducible(tensors[0]);
  const tutti_op_t op = op_for(options.reduceOp, tensors[0], memory);
  return issue({.type = OpType::ALLREDUCE,
                .title = "tutti:all_reduce",
                .inputs = tensors,
                .outputs = tensors,
                .timeout = options.timeout,
                .is_async = options.asyncOp},
               [memory, op](tutti_comm_t* comm, tutti_stream_t stream) {
                 return tutti_all_reduce(memory.data, memory.data, memory.count, memory.type, op, comm,
                                         stream);
               });
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  struct One {
    Memory memory;
    tutti_op_t op;
  };
  std::vector<One> all;
  for (const at::Tensor& tensor : tensors) {
    One one{.memory = reducible(tensor), .op = TUTTI_SUM};
    one.op = op_for(options.reduceOp, tensor, one.memory);
    all.push_back(one);
  }
  return issue({.type = OpType::ALLREDUCE_COALESCED,
                .title = "tutti:all_reduce",
                .inputs = tensors,
                .outputs = tensors,
                .timeout = options.timeout,
                .is_async = options.asyncOp},
               [all = std::move(all)](tutti_comm_t* comm, tutti_stream_t stream) {
                 return together([&] {
                   for (const auto& [memory, op] : all) {
                     const tutti_result_t result = tutti_all_reduce(memory.data, memory.data, memory.count,
                                                                    memory.type, op, comm, stream);
                     if (result != TUTTI_SUCCESS) return result;
                   }
                   return TUTTI_SUCCESS;
                 });
               });
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  check_root(options.rootRank);
  Memory memory = reducible(only(tensors));
  const tutti_op_t op = op_for(options.reduceOp, tensors[0], memory);
  return issue(
      {.type = OpType::REDUCE,
       .title = "tutti:reduce",
       .inputs = tensors,
       .outputs = tensors,
       .timeout = options.timeout,
       .is_async = options.asyncOp},
      [memory, op, root = static_cast<int>(options.rootRank)](tutti_comm_t* comm, tutti_stream_t stream) {
        return tutti_reduce(memory.data, memory.data, memory.count, memory.type, op, root, comm, stream);
      });
}

Backend::WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  return gather_list(outputs, inputs, options, "tutti:all_gather");
}

Backend::WorkPtr Backend::gather_list(const std::vector<Tensors>& outputs, const Tensors& inputs,
                                      const c10d::AllgatherOptions& options, const char* title) {
  const Tensors& list = only_list(outputs, size_);
  const at::Tensor& input = only(inputs);
  check_same_type(list[0], input);
  const at::Tensor source = input.is_contiguous() ? input : input.contiguous();
  const Memory send = contiguous(source, false);
  const auto piece = std::make_shared<Piece>(list, false);
  TORCH_CHECK(piece->counts()[rank_] == send.count, "tutti: rank ", rank_, " gives ", send.count,
              " elements, but its place in the output list has ", piece->counts()[rank_]);
  const auto work = make_work({.type = OpType::ALLGATHER,
                               .title = title,
                               .inputs = {input},
                               .outputs = list,
                               .timeout = options.timeout},
                              sequence_);
  work->keep(source);
  work->keep(piece->packed());
  work->before_completion([piece, list] { piece->copy_out(list); });
  return issue(work, options.asyncOp, [send, piece](tutti_comm_t* comm, tutti_stream_t stream) {
    const Memory& recv = piece->memory();
    if (piece->has_equal_counts())
      return tutti_all_gather(send.data, recv.data, send.count, recv.type, comm, stream);
    return tutti_all_gather_v(send.data, recv.data, piece->counts().data(), nullptr, recv.type, comm, stream);
  });
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  check_blocks(output, input, "output");
  const Memory send = contiguous(input, false);
  const Memory recv = contiguous(output, false);
  return issue({.type = OpType::_ALLGATHER_BASE,
                .title = "tutti:_all_gather_base",
                .inputs = {input},
                .outputs = {output},
                .timeout = options.timeout,
                .is_async = options.asyncOp},
               [send, recv](tutti_comm_t* comm, tutti_stream_t stream) {
                 return tutti_all_gather(send.data, recv.data, send.count, send.type, comm, stream);
               });
}

Backend::WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  // outputs[rank][i] receives inputs[i] of the rank.
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "tutti: all_gather_coalesced got ",
              outputs.size(), " output lists for ", size_, " ranks");
  // One range for the profiler, with the shapes of all inputs.
  Description what{.type = OpType::ALLGATHER_COALESCED, .title = "tutti:all_gather", .inputs = inputs};
  std::vector<std::vector<Tensors>> places(inputs.size(), std::vector<Tensors>(1));
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const Tensors& list : outputs) {
      TORCH_CHECK(list.size() == inputs.size(), "tutti: all_gather_coalesced got ", inputs.size(),
                  " inputs and an output list of ", list.size());
      places[i][0].push_back(list[i]);
      what.outputs.push_back(list[i]);
    }
  }
  const auto joined = make_numbered(std::move(what), sequence_);
  std::vector<c10::intrusive_ptr<Work>> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors one = {inputs[i]};
    works.push_back(c10::static_intrusive_pointer_cast<Work>(
        gather_list(places[i], one, {.timeout = options.timeout, .asyncOp = true}, nullptr)));
  }
  if (is_on_stream(*joined)) return issue(joined, /*is_async=*/true, no_call);
  join(joined, works);
  return joined;
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: there are ", outputs.size(), " outputs and ",
              inputs.size(), " inputs");
  std::vector<std::pair<Memory, Memory>> pairs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_blocks(outputs[i], inputs[i], "output");
    pairs.emplace_back(contiguous(inputs[i], false), contiguous(outputs[i], false));
  }
  return issue({.type = OpType::ALLGATHER_INTO_TENSOR_COALESCED,
                .title = "tutti:_all_gather_base",
                .inputs = inputs,
                .outputs = outputs,
                .timeout = options.timeout,
                .is_async = options.asyncOp},
               [pairs = std::move(pairs)](tutti_comm_t* comm, tutti_stream_t stream) {
                 return together([&] {
                   for (const auto& [send, recv] : pairs) {
                     const auto result =
                         tutti_all_gather(send.data, recv.data, send.count, send.type, comm, stream);
                     if (result != TUTTI_SUCCESS) return result;
                   }
                   return TUTTI_SUCCESS;
                 });
               });
}

Backend::WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  check_root(options.rootRank);
  const at::Tensor& input = only(inputs);
  const at::Tensor source = input.is_contiguous() ? input : input.contiguous();
  const Memory send = contiguous(source, false);
  const bool is_root = options.rootRank == rank_;
  TORCH_CHECK(is_root || outputs.empty(), "tutti: gather has outputs on rank ", rank_, ", but the root is ",
              options.rootRank);
  std::shared_ptr<Piece> piece;
  Tensors list;
  if (is_root) {
    list = only_list(outputs, size_);
    check_same_type(list[0], input);
    piece = std::make_shared<Piece>(list, false);
    TORCH_CHECK(piece->has_equal_counts() && piece->counts()[0] == send.count,
                "tutti: gather needs output tensors of the input's size, ", input.sizes());
  }
  const auto work = make_work({.type = OpType::GATHER,
                               .title = "tutti:gather",
                               .inputs = {input},
                               .outputs = list,
                               .timeout = options.timeout},
                              sequence_);
  work->keep(source);
  if (is_root) {
    work->keep(piece->packed());
    work->before_completion([piece, list] { piece->copy_out(list); });
  }
  const auto root = static_cast<int>(options.rootRank);
  return issue(work, options.asyncOp, [send, piece, root](tutti_comm_t* comm, tutti_stream_t stream) {
    void* recv = piece ? piece->memory().data : nullptr;
    return tutti_gather(send.data, recv, send.count, send.type, root, comm, stream);
  });
}

Backend::WorkPtr Backend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                             const c10d::GatherOptions& options) {
  check_root(options.rootRank);
  const Memory send = contiguous(input, false);
  Memory recv;
  const bool is_root = options.rootRank == rank_;
  if (is_root) {
    check_blocks(output, input, "output");
    recv = contiguous(output, false);
  }
  return issue(
      {.type = OpType::GATHER,
       .title = "tutti:gather",
       .inputs = {input},
       .outputs = is_root ? Tensors{output} : Tensors{},
       .timeout = options.timeout,
       .is_async = options.asyncOp},
      [send, recv, root = static_cast<int>(options.rootRank)](tutti_comm_t* comm, tutti_stream_t stream) {
        return tutti_gather(send.data, recv.data, send.count, send.type, root, comm, stream);
      });
}

Backend::WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& options) {
  check_root(options.rootRank);
  const at::Tensor& output = only(outputs);
  const Memory recv = contiguous(output, false);
  const bool is_root = options.rootRank == rank_;
  TORCH_CHECK(is_root || inputs.empty(), "tutti: scatter has inputs on rank ", rank_, ", but the root is ",
              options.rootRank);
  std::shared_ptr<Piece> piece;
  if (is_root) {
    const Tensors& list = only_list(inputs, size_);
    check_same_type(output, list[0]);
    piece = std::make_shared<Piece>(list, false);
    TORCH_CHECK(piece->has_equal_counts() && piece->counts()[0] == recv.count,
                "tutti: scatter needs input tensors of the output's size, ", output.sizes());
    piece->copy_in(list);
  }
  const auto work = make_work({.type = OpType::SCATTER,
                               .title = "tutti:scatter",
                               .inputs = is_root ? inputs[0] : Tensors{},
                               .outputs = outputs,
                               .timeout = options.timeout},
                              sequence_);
  if (is_root) work->keep(piece->packed());
  const auto root = static_cast<int>(options.rootRank);
  return issue(work, options.asyncOp, [recv, piece, root](tutti_comm_t* comm, tutti_stream_t stream) {
    const void* send = piece ? piece->memory().data : nullptr;
    return tutti_scatter(send, recv.data, recv.count, recv.type, root, comm, stream);
  });
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const Tensors& list = only_list(inputs, size_);
  const at::Tensor& output = only(outputs);
  check_same_type(output, list[0]);
  Memory recv = contiguous(output, true);
  const tutti_op_t op = op_for(options.reduceOp, output, recv);
  const auto piece = std::make_shared<Piece>(list, true);
  TORCH_CHECK(piece->counts()[rank_] == recv.count, "tutti: rank ", rank_, " receives ", recv.count,
              " elements, but its place in the input list has ", piece->counts()[rank_]);
  piece->copy_in(list);
  const auto work = make_work({.type = OpType::REDUCE_SCATTER,
                               .title = "tutti:reduce_scatter",
                               .inputs = list,
                               .outputs = outputs,
                               .timeout = options.timeout},
                              sequence_);
  work->keep(piece->packed());
  return issue(work, options.asyncOp, [recv, piece, op](tutti_comm_t* comm, tutti_stream_t stream) {
    const void* send = piece->memory().data;
    if (piece->has_equal_counts())
      return tutti_reduce_scatter(send, recv.data, recv.count, recv.type, op, comm, stream);
    return tutti_reduce_scatter_v(send, recv.data, piece->counts().data(), nullptr, recv.type, op, comm,
                                  stream);
  });
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  check_blocks(input, output, "input");
  const Memory send = contiguous(input, true);
  Memory recv = contiguous(output, true);
  const tutti_op_t op = op_for(options.reduceOp, output, recv);
  return issue({.type = OpType::_REDUCE_SCATTER_BASE,
                .title = "tutti:_reduce_scatter_base",
                .inputs = {input},
                .outputs = {output},
                .timeout = options.timeout,
                .is_async = options.asyncOp},
               [send, recv, op](tutti_comm_t* comm, tutti_stream_t stream) {
                 return tutti_reduce_scatter(send.data, recv.data, recv.count, recv.type, op, comm, stream);
               });
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: there are ", outputs.size(), " outputs and ",
              inputs.size(), " inputs");
  struct One {
    Memory send;
    Memory recv;
    tutti_op_t op;
  };
  std::vector<One> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_blocks(inputs[i], outputs[i], "input");
    One one{.send = contiguous(inputs[i], true), .recv = contiguous(outputs[i], true), .op = TUTTI_SUM};
    one.op = op_for(options.reduceOp, outputs[i], one.recv);
    all.push_back(one);
  }
  return issue({.type = OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                .title = "tutti:_reduce_scatter_base",
                .inputs = inputs,
                .outputs = outputs,
                .timeout = options.timeout,
                .is_async = options.asyncOp},
               [all = std::move(all)](tutti_comm_t* comm, tutti_stream_t stream) {
                 return together([&] {
                   for (const auto& [send, recv, op] : all) {
                     const tutti_result_t result =
                         tutti_reduce_scatter(send.data, recv.data, recv.count, recv.type, op, comm, stream);
                     if (result != TUTTI_SUCCESS) return result;
                   }
                   return TUTTI_SUCCESS;
                 });
               });
}

Backend::WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  check_same_type(output, input);
  Memory send = contiguous(input, false);
  const Memory recv = contiguous(output, false);
  auto sends = blocks_of(input, send, input_splits, size_, "input");
  auto recvs = blocks_of(output, recv, output_splits, size_, "output");
  const bool has_splits = !input_splits.empty() || !output_splits.empty();
  TORCH_CHECK(has_splits || send.count == recv.count, "tutti: all_to_all has an input of ", input.numel(),
              " elements and an output of ", output.numel(), "; without split sizes they must be equal");
  const auto work = make_work({.type = OpType::ALLTOALL_BASE,
                               .title = "tutti:all_to_all",
                               .inputs = {input},
                               .outputs = {output},
                               .timeout = options.timeout},
                              sequence_);
  // The ranks must agree on the form of the call, and another rank may have passed splits. Devices have a
  // faster one for short equal blocks, so there all ranks pass splits, or none.
  const bool is_equal = !has_splits && input.is_cuda();
  if (!is_equal && send.data == recv.data) {  // all_to_all_v has no in place
    const at::Tensor copy = input.clone();
    work->keep(copy);
    send = contiguous(copy, false);
  }
  return issue(work, options.asyncOp,
               [send, recv, sends = std::move(sends), recvs = std::move(recvs), is_equal](
                   tutti_comm_t* comm, tutti_stream_t stream) {
                 if (is_equal)
                   return tutti_all_to_all(send.data, recv.data, sends[0], send.type, comm, stream);
                 return tutti_all_to_all_v(send.data, sends.data(), nullptr, recv.data, recvs.data(), nullptr,
                                           send.type, comm, stream);
               });
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_) && inputs.size() == outputs.size(),
              "tutti: all_to_all needs ", size_, " outputs and inputs, but it got ", outputs.size(), " and ",
              inputs.size());
  check_same_type(outputs[0], inputs[0]);
  const auto send = std::make_shared<Piece>(inputs, false);
  const auto recv = std::make_shared<Piece>(outputs, false);
  send->copy_in(inputs);
  const auto work = make_work({.type = OpType::ALLTOALL,
                               .title = "tutti:all_to_all",
                               .inputs = inputs,
                               .outputs = outputs,
                               .timeout = options.timeout},
                              sequence_);
  work->keep(send->packed());
  work->keep(recv->packed());
  work->before_completion([recv, list = outputs] { recv->copy_out(list); });
  return issue(work, options.asyncOp, [send, recv](tutti_comm_t* comm, tutti_stream_t stream) {
    return tutti_all_to_all_v(send->memory().data, send->counts().data(), nullptr, recv->memory().data,
                              recv->counts().data(), nullptr, send->memory().type, comm, stream);
  });
}

/// Whether this group has CUDA tensors only, so that c10d sends every barrier to CUDA.
bool Backend::serves_only_cuda() const {
  const auto group = owner_.lock();
  return group && !group->hasBackendForDeviceType(c10::DeviceType::CPU);
}

/// The device on whose current stream a barrier waits. On the CPU only the ranks' threads wait for each
/// other. c10d passes the ids of the devices, but neither the device nor whether it asks for the CPU or for
/// CUDA. What decides here must be equal on all ranks.
at::Device Backend::device_of_barrier(const c10d::BarrierOptions& options) const {
  if (options.device && (options.device->is_cpu() || options.device->has_index())) return *options.device;
  // A process without CUDA may pass ids too.
  if (!options.device_ids.empty() && at::hasCUDA())
    return {at::kCUDA, static_cast<at::DeviceIndex>(options.device_ids[0])};
  const auto bound = getBoundDeviceId();
  if (bound && bound->is_cuda()) return *bound;
  const DeviceSide* const side = side_.load();
  return side != nullptr && serves_only_cuda() ? side->device() : at::kCPU;
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  const auto work = make_work({.type = OpType::BARRIER,
                               .title = "tutti:barrier",
                               .device = device_of_barrier(options),
                               .timeout = options.timeout},
                              sequence_);
  if (is_on_stream(*work)) static_cast<StreamWork&>(*work).block_program();
  return issue(work, options.asyncOp,
               [](tutti_comm_t* comm, tutti_stream_t stream) { return tutti_barrier(comm, stream); });
}

}  // namespace tutti_torch
