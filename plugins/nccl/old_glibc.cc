// Lets this library load on systems with an older glibc than that of the build.
//
// The static libstdc++ of GCC 12 for Debian 12 calls arc4random, of glibc 2.36. This definition is hidden, so
// that only this library uses it.
#include <sys/random.h>

#include <cstdint>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() noexcept {
  uint32_t word = 0;
  // As glibc does: without random bytes no program is safe.
  if (getrandom(&word, sizeof(word), 0) != sizeof(word)) __builtin_trap();
  return word;
}
