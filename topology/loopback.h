// Loopback: two sockets of this process that are joined over the loopback interface, for probes.
#pragma once

#include <array>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti::topology {

/// TCP, without delays and pacing, as between ranks of one machine. Errors: kSystemError.
Result<std::array<FileDescriptor, 2>> connect_loopback();

}  // namespace tutti::topology
