// Exported collectives with a configuration. Each checks the configuration, then makes the plain call.
#include "plugins/nccl/config.h"
#include "plugins/nccl/group.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

template <class Plain>
ncclResult_t configured(const char* call, const ncclCollConfig_t* config, Plain&& plain) noexcept {
  const ncclResult_t checked = grouped(call, [&] { return check_coll_config(config); });
  return checked == ncclSuccess ? plain() : checked;
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclAllReduceConfig, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclAllReduceConfig", config,
                    [&] { return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclBroadcastConfig, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclBroadcastConfig", config,
                    [&] { return pncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclReduceConfig, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclReduceConfig", config,
                    [&] { return pncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclAllGatherConfig, const void* sendbuff, void* recvbuff, size_t sendcount,
                ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclAllGatherConfig", config,
                    [&] { return pncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclReduceScatterConfig, const void* sendbuff, void* recvbuff, size_t recvcount,
                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclReduceScatterConfig", config, [&] {
    return pncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclAlltoAllConfig, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclAlltoAllConfig", config,
                    [&] { return pncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclGatherConfig, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclGatherConfig", config,
                    [&] { return pncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclScatterConfig, const void* sendbuff, void* recvbuff, size_t count,
                ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
                const ncclCollConfig_t* config) {
  return configured("ncclScatterConfig", config,
                    [&] { return pncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}
