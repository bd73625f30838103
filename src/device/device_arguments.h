// What users hand to ranks on devices, checked: streams and pointers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/result.h"
#include "cuda/context.h"

namespace tutti {

/// The stream, if it is one of the context's device. Errors: kInvalidArgument.
Result<CUstream> check_stream(const cuda::Context& context, uint32_t rank, void* handle);

/// The number of the capture that `stream` is part of; none outside captures. Errors: kInvalidUsage (the
/// capture has failed).
Result<std::optional<uint64_t>> find_capture(const cuda::Driver& driver, CUstream stream);

/// What each stream of `later` is given from now on runs after what each of `earlier` has been given. All are
/// checked before any changes. `event`: whose last use by another call is over. Errors: as above,
/// kInvalidUsage (not all in one capture, or none of them in any), kSystemError.
Status order_streams(const cuda::Context& context, uint32_t rank, const cuda::Event& event,
                     std::span<void* const> earlier, std::span<void* const> later);

/// Ok when the context's device can work on memory at `address`. `name`: of the argument. Errors:
/// kInvalidArgument.
Status check_device_pointer(const cuda::Context& context, uint32_t rank, std::string_view name,
                            const void* address);

}  // namespace tutti
