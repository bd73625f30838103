// Lines that a core has written, sent to where another core reads them sooner.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Asks the core to move these lines from its own caches to the one that all cores share. A hint: `cldemote`
/// of Intel's servers from Sapphire Rapids on, encoded as an instruction that other x86-64 processors pass
/// over. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, CLDEMOTE.
inline void demote_lines([[maybe_unused]] const void* address, [[maybe_unused]] uint64_t bytes) {
#if defined(__x86_64__)
  const auto* const first = static_cast<const std::byte*>(address);
  for (uint64_t i = 0; i < bytes; i += 64)
    asm volatile(".byte 0x0f, 0x1c, 0x00" : : "a"(first + i) : "memory");  // cldemote (%rax)
#endif
}

}  // namespace tutti
