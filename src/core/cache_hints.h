// Hints to the caches about lines that two cores pass to each other. They change no byte.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

/// Whether the processor has `cldemote`: bit 25 of ecx, leaf 7. Source: the same, "CPUID".
inline bool can_demote_lines() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 25 & 1) != 0;
#else
  return false;
#endif
}

/// After a payload of at most this many bytes a writer claims its next slot's lines, when it would mostly
/// wait for an answer. Longer payloads gain nothing (docs/measurements/carriage.md).
inline constexpr uint64_t kMostClaimedBytes = 8192;

/// Asks for these lines as the core's own, which it is about to write: other cores give up their copies. It
/// does not wait. Source: the same, volume 2B, PREFETCHW, which processors without it pass over.
inline void claim_lines(const void* address, uint64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(address);
  for (uint64_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(first[i]));
#else
    __builtin_prefetch(first + i, 1);
#endif
  }
}

}  // namespace tutti
