// Lets a library or program with a static libstdc++ load on systems with an older glibc than that of the
// build.
//
// The static libstdc++ of GCC 12 for Debian 12, and code that is compiled with that system's headers, use
// three names of glibc 2.30 to 2.36. These definitions are hidden, so that only the library or program itself
// uses them.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/random.h>

#include <cstdint>
#include <ctime>

#define TUTTI_OLD_GLIBC __attribute__((visibility("hidden")))

extern "C" {

/// False: libstdc++ counts references atomically, also before the first thread starts.
TUTTI_OLD_GLIBC char __libc_single_threaded = 0;

TUTTI_OLD_GLIBC uint32_t arc4random() noexcept {
  uint32_t word = 0;
  // As glibc does: without random bytes no program is safe.
  if (getrandom(&word, sizeof(word), 0) != sizeof(word)) __builtin_trap();
  return word;
}

/// glibc's own if there is one. Older glibcs have only CLOCK_REALTIME here: then a wait of the same length by
/// that clock. libstdc++ asks its own clock after the wait.
TUTTI_OLD_GLIBC int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                           const timespec* deadline) {
  static const auto kOfSystem =
      reinterpret_cast<decltype(&pthread_cond_clockwait)>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (kOfSystem != nullptr) return kOfSystem(condition, mutex, clock, deadline);
  constexpr long kSecond = 1'000'000'000;
  timespec now{};
  timespec until{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += deadline->tv_sec - now.tv_sec;
  until.tv_nsec += deadline->tv_nsec - now.tv_nsec;
  for (; until.tv_nsec < 0; until.tv_nsec += kSecond) --until.tv_sec;
  for (; until.tv_nsec >= kSecond; until.tv_nsec -= kSecond) ++until.tv_sec;
  return pthread_cond_timedwait(condition, mutex, &until);
}
}
