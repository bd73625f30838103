// Exported calls that move data. Each checks NCCL's rules, then makes the same call of tutti.
#include <cstddef>

#include "api/handle.h"
#include "plugins/nccl/cuda_memory.h"
#include "plugins/nccl/group.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

// Types and built-in operators have the same values. tutti has more types, and other operators from 5 on.
static_assert(static_cast<int>(ncclFloat8e5m2) == TUTTI_FLOAT8_E5M2 &&
              static_cast<int>(ncclBfloat16) == TUTTI_BFLOAT16 && ncclNumTypes == TUTTI_FLOAT8_E5M2 + 1);
static_assert(static_cast<int>(ncclAvg) == TUTTI_AVG && static_cast<int>(ncclMin) == TUTTI_MIN &&
              ncclNumOps == TUTTI_AVG + 1);

namespace {

Status check_type(ncclDataType_t type) {
  if (type >= 0 && type < ncclNumTypes) [[likely]]
    return Status::ok();
  return {Code::kInvalidArgument, format("argument datatype is %d: it is not an ncclDataType_t", type)};
}

/// Refuses streams and buffers that a rank on host memory cannot use. For a rank on a device, tutti itself
/// checks them.
Status check_host_call(cudaStream_t stream, const void* send, const void* recv) {
  if (stream != nullptr) {
    return {Code::kUnsupported,
            format("argument stream is %p, but the rank works on host memory, where only the null stream is "
                   "accepted: no CUDA context was current when its communicator was made",
                   static_cast<void*>(stream))};
  }
  TUTTI_TRY(check_host_memory("sendbuff", send));
  return check_host_memory("recvbuff", recv);
}

/// The operator for tutti. When the scalar is read at each call, this class makes an operator and destroys it
/// after the call.
class OpBelow {
 public:
  OpBelow(ncclComm* comm, ncclRedOp_t op, ncclDataType_t type) : comm_(comm) {
    if (op >= 0 && op < ncclNumOps) [[likely]] {
      op_ = static_cast<tutti_op_t>(op);
    } else {
      looked_up_ = find(op, type);
    }
  }
  ~OpBelow() {
    if (made_) static_cast<void>(tutti_op_destroy(op_, comm_->comm));
  }
  OpBelow(const OpBelow&) = delete;
  OpBelow& operator=(const OpBelow&) = delete;

  const Status& status() const { return looked_up_; }
  tutti_op_t op() const { return op_; }

 private:
  Status find(ncclRedOp_t op, ncclDataType_t type) {
    const std::scoped_lock lock(comm_->mutex);
    const auto found = comm_->ops.find(op);
    if (found == comm_->ops.end()) {
      return {Code::kInvalidArgument,
              format("argument op is %d: neither an ncclRedOp_t nor made for this communicator", op)};
    }
    const UserOp& user = found->second;
    if (static_cast<int>(user.type) != static_cast<int>(type)) {
      return {Code::kInvalidArgument, format("argument op was made for datatype %d, argument datatype is %d",
                                             user.type, static_cast<int>(type))};
    }
    op_ = user.op;
    if (user.scalar == nullptr) return Status::ok();
    TUTTI_TRY(status_of(tutti_op_create_premul_sum(&op_, user.scalar, user.type, comm_->comm)));
    made_ = true;
    return Status::ok();
  }

  ncclComm* comm_;
  tutti_op_t op_ = TUTTI_SUM;
  bool made_ = false;
  Status looked_up_;
};

/// Checks the arguments that all calls share, then calls `run(communicator, type, stream)`.
template <class Run>
ncclResult_t issue(const char* call, ncclComm* comm, cudaStream_t stream, const void* send, const void* recv,
                   ncclDataType_t type, Run&& run) noexcept {
  return grouped_on(call, comm, [&]() -> Status {
    TUTTI_TRY(comm->check_ready());
    TUTTI_TRY(check_type(type));
    if (!comm->on_device()) TUTTI_TRY(check_host_call(stream, send, recv));
    TUTTI_TRY(run(comm->comm, static_cast<tutti_type_t>(type), comm->operation_stream(stream)));
    return issued(comm);
  });
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return issue(
      "ncclAllReduce", comm, stream, sendbuff, recvbuff, datatype,
      [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) -> Status {
        const OpBelow reduction(comm, op, datatype);
        TUTTI_TRY(reduction.status());
        return status_of(tutti_all_reduce(sendbuff, recvbuff, count, type, reduction.op(), below, order));
      });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclReduce, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return issue(
      "ncclReduce", comm, stream, sendbuff, recvbuff, datatype,
      [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) -> Status {
        const OpBelow reduction(comm, op, datatype);
        TUTTI_TRY(reduction.status());
        return status_of(tutti_reduce(sendbuff, recvbuff, count, type, reduction.op(), root, below, order));
      });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclBroadcast", comm, stream, sendbuff, recvbuff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_broadcast(sendbuff, recvbuff, count, type, root, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclBcast, void* buff, size_t count, ncclDataType_t datatype, int root,
                ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclBcast", comm, stream, buff, buff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_broadcast(buff, buff, count, type, root, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount,
                ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclAllGather", comm, stream, sendbuff, recvbuff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_all_gather(sendbuff, recvbuff, sendcount, type, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclReduceScatter, const void* sendbuff, void* recvbuff, size_t recvcount,
                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclReduceScatter", comm, stream, sendbuff, recvbuff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) -> Status {
                 const OpBelow reduction(comm, op, datatype);
                 TUTTI_TRY(reduction.status());
                 return status_of(
                     tutti_reduce_scatter(sendbuff, recvbuff, recvcount, type, reduction.op(), below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclAlltoAll", comm, stream, sendbuff, recvbuff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_all_to_all(sendbuff, recvbuff, count, type, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclGather, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclGather", comm, stream, sendbuff, recvbuff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_gather(sendbuff, recvbuff, count, type, root, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclScatter, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclScatter", comm, stream, sendbuff, recvbuff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_scatter(sendbuff, recvbuff, count, type, root, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclSend", comm, stream, sendbuff, nullptr, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_send(sendbuff, count, type, peer, 0, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                ncclComm_t comm, cudaStream_t stream) {
  return issue("ncclRecv", comm, stream, nullptr, recvbuff, datatype,
               [&](tutti_comm_t* below, tutti_type_t type, tutti_stream_t order) {
                 return status_of(tutti_recv(recvbuff, count, type, peer, 0, below, order));
               });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar,
                ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded_on("ncclRedOpCreatePreMulSum", comm, [&]() -> Status {
    if (op == nullptr) return null_argument("op");
    if (scalar == nullptr) return null_argument("scalar");
    TUTTI_TRY(check_type(datatype));
    TUTTI_TRY(comm->check_ready());
    if (!comm->on_device()) TUTTI_TRY(check_host_memory("scalar", scalar));
    UserOp user{.type = static_cast<tutti_type_t>(datatype)};
    if (residence == ncclScalarDevice && comm->on_device()) {
      // The operations read the scalar themselves when they run, in any kind of memory.
      TUTTI_TRY(create_premul_sum(comm->comm, scalar, user.type, true, user.op));
    } else if (residence == ncclScalarDevice) {
      user.scalar = scalar;
    } else if (residence == ncclScalarHostImmediate) {
      TUTTI_TRY(status_of(tutti_op_create_premul_sum(&user.op, scalar, user.type, comm->comm)));
    } else {
      return {Code::kInvalidArgument,
              format("argument residence is %d: it is not an ncclScalarResidence_t", residence)};
    }
    // One counter for all communicators, so that an operator of another communicator is noticed.
    static std::atomic<int> next{ncclNumOps};
    const int number = next.fetch_add(1, std::memory_order_relaxed);
    const std::scoped_lock lock(comm->mutex);
    comm->ops.emplace(number, user);
    *op = static_cast<ncclRedOp_t>(number);
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  return guarded_on("ncclRedOpDestroy", comm, [&]() -> Status {
    TUTTI_TRY(comm->check_ready());
    const std::scoped_lock lock(comm->mutex);
    const auto found = comm->ops.find(op);
    if (found == comm->ops.end()) {
      return {Code::kInvalidArgument, format("argument op is %d: it was not made for this communicator", op)};
    }
    const UserOp user = found->second;
    comm->ops.erase(found);
    return user.scalar != nullptr ? Status::ok() : status_of(tutti_op_destroy(user.op, comm->comm));
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclGroupStart) {
  return guarded("ncclGroupStart", [] { return group_start(); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclGroupEnd) {
  return guarded("ncclGroupEnd", [] { return group_end(); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* simInfo) {
  return guarded("ncclGroupSimulateEnd", [&]() -> Status {
    const auto predicted = group_simulate_end();
    TUTTI_TRY(predicted.status());
    if (simInfo == nullptr) return null_argument("simInfo");
    if (simInfo->size < offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float) ||
        simInfo->magic != NCCL_SIM_INFO_MAGIC) {
      return {Code::kInvalidArgument,
              "argument simInfo is not an ncclSimInfo_t: start from NCCL_SIM_INFO_INITIALIZER"};
    }
    simInfo->estimatedTime = static_cast<float>(*predicted);
    return Status::ok();
  });
}
