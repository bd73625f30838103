// Checks what users pass to ranks on devices: streams and pointers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/result.h"
#include "cuda/context.h"

namespace tutti {

/// The stream, if it belongs to the context's device. Errors: kInvalidArgument.
Result<CUstream> check_stream(const cuda::Context& context, uint32_t rank, void* handle);

/// The number of the capture of `stream`; none outside captures. Errors: kInvalidUsage (the capture has
/// failed).
Result<std::optional<uint64_t>> find_capture(const cuda::Driver& driver, CUstream stream);

/// Makes later work of each stream in `later` run after the present work of all in `earlier`. Checks all
/// before changing any. `event`: in no other use. Errors: as above, kInvalidUsage (not all in the same
/// capture), kSystemError.
Status order_streams(const cuda::Context& context, uint32_t rank, const cuda::Event& event,
                     std::span<void* const> earlier, std::span<void* const> later);

/// Ok if the context's device can use `address`. `name`: of the argument. Errors: kInvalidArgument.
Status check_device_pointer(const cuda::Context& context, uint32_t rank, std::string_view name,
                            const void* address);

}  // namespace tutti
