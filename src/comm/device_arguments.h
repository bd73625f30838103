// What users hand to ranks on devices, checked: streams and pointers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/result.h"
#include "cuda/context.h"

namespace tutti {

/// The stream, if it is one of the context's device. Errors: kInvalidArgument.
Result<CUstream> check_stream(const cuda::Context& context, uint32_t rank, void* handle);

/// The number of the capture that `stream` is part of; none outside captures. Errors: kInvalidUsage (the
/// capture has failed).
Result<std::optional<uint64_t>> find_capture(const cuda::Driver& driver, CUstream stream);

/// Ok when the context's device can work on memory at `address`. `name`: of the argument. Errors:
/// kInvalidArgument.
Status check_device_pointer(const cuda::Context& context, uint32_t rank, std::string_view name,
                            const void* address);

}  // namespace tutti
