// What network cards need to reach a device's memory: a dma-buf of it, and visible writes. Over the driver's
// interface (cuda/driver.h).
#pragma once

#include "core/file_descriptor.h"
#include "core/result.h"
#include "cuda/context.h"
#include "transports/device_span.h"

namespace tutti {

/// The allocation that holds a buffer, for network cards.
struct CardExport {
  DeviceSpan span;  ///< its descriptor is that of `file`
  FileDescriptor file;
};

/// Ok if the driver can give this device's memory to network cards, and shows what these have written.
/// Errors: kUnsupported, with what is missing.
Status check_card_access(const cuda::Context& context);
/// Exports the allocation that `address` is in, which is memory of the context's device. Errors:
/// kUnsupported, kOutOfMemory, kSystemError: the driver refuses.
Result<CardExport> export_to_cards(const cuda::Context& context, const void* address);
/// A number that no other allocation of the process has, before or later; 0: not memory of this device.
uint64_t allocation_number(const cuda::Context& context, const void* address);
/// What cards have written so far is visible to later work on the device. Errors: kSystemError.
Status show_card_writes(const cuda::Context& context);

}  // namespace tutti
