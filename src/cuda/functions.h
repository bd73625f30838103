// The functions of CUDA's driver that tutti calls: one list for the table of pointers, the search and the
// tests' fake driver.
//
// F(member, function, type): `type` names the version of the signature. The first list needs CUDA 12.0
// (kLeastDriverVersion), and even newer drivers are asked for these versions. The other lists may be missing.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

namespace tutti::cuda {

/// The CUDA version that a driver must support, in CUDA's notation.
inline constexpr int kLeastDriverVersion = 12000;
/// Drivers from this version on have multicast memory.
inline constexpr int kMulticastDriverVersion = 12010;

}  // namespace tutti::cuda

// clang-format off
#define TUTTI_CUDA_FUNCTIONS(F)                                                                                    \
  F(init, cuInit, PFN_cuInit_v2000)                                                                                \
  F(driver_get_version, cuDriverGetVersion, PFN_cuDriverGetVersion_v2020)                                          \
  F(get_error_name, cuGetErrorName, PFN_cuGetErrorName_v6000)                                                      \
  F(get_error_string, cuGetErrorString, PFN_cuGetErrorString_v6000)                                                \
  F(device_get_count, cuDeviceGetCount, PFN_cuDeviceGetCount_v2000)                                                \
  F(device_get, cuDeviceGet, PFN_cuDeviceGet_v2000)                                                                \
  F(device_get_name, cuDeviceGetName, PFN_cuDeviceGetName_v2000)                                                   \
  F(device_get_attribute, cuDeviceGetAttribute, PFN_cuDeviceGetAttribute_v2000)                                    \
  F(device_get_uuid, cuDeviceGetUuid, PFN_cuDeviceGetUuid_v11040)                                                  \
  F(device_total_mem, cuDeviceTotalMem, PFN_cuDeviceTotalMem_v3020)                                                \
  F(device_get_pci_bus_id, cuDeviceGetPCIBusId, PFN_cuDeviceGetPCIBusId_v4010)                                     \
  F(device_can_access_peer, cuDeviceCanAccessPeer, PFN_cuDeviceCanAccessPeer_v4000)                                \
  F(primary_ctx_retain, cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000)                              \
  F(primary_ctx_release, cuDevicePrimaryCtxRelease, PFN_cuDevicePrimaryCtxRelease_v11000)                          \
  F(ctx_push_current, cuCtxPushCurrent, PFN_cuCtxPushCurrent_v4000)                                                \
  F(ctx_pop_current, cuCtxPopCurrent, PFN_cuCtxPopCurrent_v4000)                                                   \
  F(ctx_get_current, cuCtxGetCurrent, PFN_cuCtxGetCurrent_v4000)                                                   \
  F(ctx_get_device, cuCtxGetDevice, PFN_cuCtxGetDevice_v2000)                                                      \
  F(ctx_synchronize, cuCtxSynchronize, PFN_cuCtxSynchronize_v2000)                                                 \
  F(ctx_enable_peer_access, cuCtxEnablePeerAccess, PFN_cuCtxEnablePeerAccess_v4000)                                \
  F(pointer_get_attribute, cuPointerGetAttribute, PFN_cuPointerGetAttribute_v4000)                                 \
  F(pointer_get_attributes, cuPointerGetAttributes, PFN_cuPointerGetAttributes_v7000)                              \
  F(mem_get_address_range, cuMemGetAddressRange, PFN_cuMemGetAddressRange_v3020)                                   \
  F(mem_get_info, cuMemGetInfo, PFN_cuMemGetInfo_v3020)                                                            \
  F(mem_alloc, cuMemAlloc, PFN_cuMemAlloc_v3020)                                                                   \
  F(mem_alloc_managed, cuMemAllocManaged, PFN_cuMemAllocManaged_v6000)                                             \
  F(mem_free, cuMemFree, PFN_cuMemFree_v3020)                                                                      \
  F(mem_host_alloc, cuMemHostAlloc, PFN_cuMemHostAlloc_v2020)                                                      \
  F(mem_free_host, cuMemFreeHost, PFN_cuMemFreeHost_v2000)                                                         \
  F(mem_host_register, cuMemHostRegister, PFN_cuMemHostRegister_v6050)                                             \
  F(mem_host_unregister, cuMemHostUnregister, PFN_cuMemHostUnregister_v4000)                                       \
  F(mem_get_allocation_granularity, cuMemGetAllocationGranularity, PFN_cuMemGetAllocationGranularity_v10020)       \
  F(mem_create, cuMemCreate, PFN_cuMemCreate_v10020)                                                               \
  F(mem_release, cuMemRelease, PFN_cuMemRelease_v10020)                                                            \
  F(mem_address_reserve, cuMemAddressReserve, PFN_cuMemAddressReserve_v10020)                                      \
  F(mem_address_free, cuMemAddressFree, PFN_cuMemAddressFree_v10020)                                               \
  F(mem_map, cuMemMap, PFN_cuMemMap_v10020)                                                                        \
  F(mem_unmap, cuMemUnmap, PFN_cuMemUnmap_v10020)                                                                  \
  F(mem_set_access, cuMemSetAccess, PFN_cuMemSetAccess_v10020)                                                     \
  F(mem_export_to_shareable_handle, cuMemExportToShareableHandle, PFN_cuMemExportToShareableHandle_v10020)         \
  F(mem_import_from_shareable_handle, cuMemImportFromShareableHandle, PFN_cuMemImportFromShareableHandle_v10020)   \
  F(mem_retain_allocation_handle, cuMemRetainAllocationHandle, PFN_cuMemRetainAllocationHandle_v11000)             \
  F(ipc_get_mem_handle, cuIpcGetMemHandle, PFN_cuIpcGetMemHandle_v4010)                                            \
  F(ipc_open_mem_handle, cuIpcOpenMemHandle, PFN_cuIpcOpenMemHandle_v11000)                                        \
  F(ipc_close_mem_handle, cuIpcCloseMemHandle, PFN_cuIpcCloseMemHandle_v4010)                                      \
  F(memcpy_async, cuMemcpyAsync, PFN_cuMemcpyAsync_v4000)                                                          \
  F(memset_d8_async, cuMemsetD8Async, PFN_cuMemsetD8Async_v3020)                                                   \
  F(stream_create, cuStreamCreate, PFN_cuStreamCreate_v2000)                                                       \
  F(stream_destroy, cuStreamDestroy, PFN_cuStreamDestroy_v4000)                                                    \
  F(stream_synchronize, cuStreamSynchronize, PFN_cuStreamSynchronize_v2000)                                        \
  F(stream_query, cuStreamQuery, PFN_cuStreamQuery_v2000)                                                          \
  F(stream_wait_event, cuStreamWaitEvent, PFN_cuStreamWaitEvent_v3020)                                             \
  F(stream_wait_value32, cuStreamWaitValue32, PFN_cuStreamWaitValue32_v11070)                                      \
  F(stream_wait_value64, cuStreamWaitValue64, PFN_cuStreamWaitValue64_v11070)                                      \
  F(stream_write_value32, cuStreamWriteValue32, PFN_cuStreamWriteValue32_v11070)                                   \
  F(stream_write_value64, cuStreamWriteValue64, PFN_cuStreamWriteValue64_v11070)                                   \
  F(stream_get_ctx, cuStreamGetCtx, PFN_cuStreamGetCtx_v9020)                                                      \
  F(stream_begin_capture, cuStreamBeginCapture, PFN_cuStreamBeginCapture_v10010)                                   \
  F(stream_end_capture, cuStreamEndCapture, PFN_cuStreamEndCapture_v10000)                                         \
  F(stream_is_capturing, cuStreamIsCapturing, PFN_cuStreamIsCapturing_v10000)                                      \
  F(stream_get_capture_info, cuStreamGetCaptureInfo, PFN_cuStreamGetCaptureInfo_v11030)                            \
  F(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, PFN_cuThreadExchangeStreamCaptureMode_v10010) \
  F(launch_host_func, cuLaunchHostFunc, PFN_cuLaunchHostFunc_v10000)                                               \
  F(event_create, cuEventCreate, PFN_cuEventCreate_v2000)                                                          \
  F(event_destroy, cuEventDestroy, PFN_cuEventDestroy_v4000)                                                       \
  F(event_record, cuEventRecord, PFN_cuEventRecord_v2000)                                                          \
  F(event_query, cuEventQuery, PFN_cuEventQuery_v2000)                                                             \
  F(event_synchronize, cuEventSynchronize, PFN_cuEventSynchronize_v2000)                                           \
  F(event_elapsed_time, cuEventElapsedTime, PFN_cuEventElapsedTime_v2000)                                          \
  F(graph_instantiate, cuGraphInstantiateWithFlags, PFN_cuGraphInstantiateWithFlags_v11040)                        \
  F(graph_launch, cuGraphLaunch, PFN_cuGraphLaunch_v10000)                                                         \
  F(graph_exec_destroy, cuGraphExecDestroy, PFN_cuGraphExecDestroy_v10000)                                         \
  F(graph_destroy, cuGraphDestroy, PFN_cuGraphDestroy_v10000)                                                      \
  F(library_load_data, cuLibraryLoadData, PFN_cuLibraryLoadData_v12000)                                            \
  F(library_unload, cuLibraryUnload, PFN_cuLibraryUnload_v12000)                                                   \
  F(library_get_kernel, cuLibraryGetKernel, PFN_cuLibraryGetKernel_v12000)                                         \
  F(kernel_get_function, cuKernelGetFunction, PFN_cuKernelGetFunction_v12000)                                      \
  F(func_get_attribute, cuFuncGetAttribute, PFN_cuFuncGetAttribute_v2020)                                          \
  F(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, PFN_cuOccupancyMaxActiveBlocksPerMultiprocessor_v6050) \
  F(launch_kernel, cuLaunchKernelEx, PFN_cuLaunchKernelEx_v11060)

#define TUTTI_CUDA_MULTICAST_FUNCTIONS(F)                                                                          \
  F(multicast_create, cuMulticastCreate, PFN_cuMulticastCreate_v12010)                                             \
  F(multicast_add_device, cuMulticastAddDevice, PFN_cuMulticastAddDevice_v12010)                                   \
  F(multicast_bind_mem, cuMulticastBindMem, PFN_cuMulticastBindMem_v12010)                                         \
  F(multicast_get_granularity, cuMulticastGetGranularity, PFN_cuMulticastGetGranularity_v12010)

// Memory for network cards (dma-buf).
#define TUTTI_CUDA_CARD_FUNCTIONS(F)                                                                               \
  F(mem_get_handle_for_address_range, cuMemGetHandleForAddressRange, PFN_cuMemGetHandleForAddressRange_v11070)     \
  F(flush_gpu_direct_writes, cuFlushGPUDirectRDMAWrites, PFN_cuFlushGPUDirectRDMAWrites_v11030)
// clang-format on
