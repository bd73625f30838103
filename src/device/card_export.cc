#include "device/card_export.h"

#include <unistd.h>

#include <utility>

namespace tutti {

Status check_card_access(const cuda::Context& context) {
  const cuda::DeviceFacts& facts = context.facts();
  const auto refuse = [&](const char* why) {
    return Status(Code::kUnsupported,
                  format("device %d (%s): %s", context.device(), facts.name.c_str(), why));
  };
  if (context.driver().mem_get_handle_for_address_range == nullptr)
    return refuse("the driver lacks cuMemGetHandleForAddressRange");
  if (!facts.exports_to_cards)
    return refuse(
        "the driver makes no dma-buf of its memory (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0): load the "
        "open kernel modules on Linux 5.12 or newer");
  if (facts.orders_writes) return Status::ok();
  if (!facts.flushes_writes || context.driver().flush_gpu_direct_writes == nullptr)
    return refuse("the host cannot flush what a network card has written");
  return Status::ok();
}

/// A dma-buf holds whole pages of the host (CUDA's driver interface, cuMemGetHandleForAddressRange). Short
/// allocations share a page; then the neighbours are exported too.
Result<CardExport> export_to_cards(const cuda::Context& context, const void* address) {
  const cuda::BesideCaptures beside(context.driver());
  const cuda::CurrentContext current(context);
  TUTTI_TRY(current.status());
  const cuda::Driver& driver = context.driver();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  TUTTI_TRY(driver.check(driver.mem_get_address_range(&base, &bytes, reinterpret_cast<CUdeviceptr>(address)),
                         "cuMemGetAddressRange"));
  const auto page = static_cast<CUdeviceptr>(sysconf(_SC_PAGESIZE));
  const CUdeviceptr first = base / page * page;
  const CUdeviceptr end = (base + bytes + page - 1) / page * page;
  int descriptor = -1;
  TUTTI_TRY(driver.check(driver.mem_get_handle_for_address_range(&descriptor, first, end - first,
                                                                 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                         format("cuMemGetHandleForAddressRange(%llu bytes of device %d as dma-buf)",
                                static_cast<unsigned long long>(end - first), context.device())));
  CardExport made{.span = {.address = reinterpret_cast<std::byte*>(first),
                           .bytes = end - first,
                           .descriptor = descriptor},
                  .file = FileDescriptor(descriptor)};
  return made;
}

uint64_t allocation_number(const cuda::Context& context, const void* address) {
  const cuda::Pointer found = context.driver().look_up(address);
  if (found.kind != cuda::MemoryKind::kDevice || found.device != context.device()) return 0;
  unsigned long long number = 0;
  const CUresult asked = context.driver().pointer_get_attribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                                reinterpret_cast<CUdeviceptr>(address));
  return asked == CUDA_SUCCESS ? number : 0;
}

Status show_card_writes(const cuda::Context& context) {
  if (context.facts().orders_writes) return Status::ok();
  const cuda::BesideCaptures beside(context.driver());
  const cuda::CurrentContext current(context);
  TUTTI_TRY(current.status());
  return context.driver().check(
      context.driver().flush_gpu_direct_writes(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                               CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
      "cuFlushGPUDirectRDMAWrites");
}

}  // namespace tutti
