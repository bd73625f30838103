// relax: between two looks at a line that another core is to write.
#pragma once

namespace tutti {

/// Whether relax() pauses: on some processors a pause takes 40 ns, much longer than a look.
extern const bool kHasShortPause;

/// Lets some cycles pass, and leaves the core's units to a thread that shares them. A look may take the line
/// away from its writer: between far cores 8 bytes took 1.1 times as long without this, 512 bytes up to 1.3
/// times (docs/measurements/carriage.md).
inline void relax() {
#if defined(__x86_64__)
  if (kHasShortPause) __builtin_ia32_pause();
#endif
}

}  // namespace tutti
