// The names that binaries for older systems bring along, on a system that lacks them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <set>
#include <thread>

namespace {

void* find_nothing(void*, const char*) {
  return nullptr;
}

}  // namespace

// Under names of their own, so that this program keeps glibc's; and they find no newer glibc.
#define dlsym find_nothing
#define pthread_cond_clockwait own_clockwait
#define arc4random own_arc4random
#define __libc_single_threaded own_single_threaded
#include "core/old_glibc.cc"
#undef dlsym

namespace tutti {
namespace {

constexpr long kSecondNs = 1'000'000'000;

timespec after(const timespec& time, long ns) {
  const long sum = time.tv_nsec + ns;
  return {time.tv_sec + sum / kSecondNs, sum % kSecondNs};
}

bool is_before(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

timespec now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time;
}

class OldGlibcTest : public testing::Test {
 protected:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

// Goal: a wait by a clock that glibc 2.28 does not have here ends at its deadline, and not before.
// Method: deadlines 30 ms ahead, and past ones in every eighth of a second. The two clocks may run apart by
// parts of a thousand.
TEST_F(OldGlibcTest, AWaitEndsAtItsDeadline) {
  pthread_mutex_lock(&mutex_);
  for (int i = 0; i < 8; ++i) {
    const timespec deadline = after(now(), 30'000'000);
    EXPECT_EQ(own_clockwait(&condition_, &mutex_, CLOCK_MONOTONIC, &deadline), ETIMEDOUT);
    EXPECT_FALSE(is_before(after(now(), 1'000'000), deadline));
    const timespec past{deadline.tv_sec - 5, i * kSecondNs / 8};
    EXPECT_EQ(own_clockwait(&condition_, &mutex_, CLOCK_MONOTONIC, &past), ETIMEDOUT);
  }
  pthread_mutex_unlock(&mutex_);
}

// Goal: a signal ends the wait long before its deadline.
TEST_F(OldGlibcTest, ASignalEndsAWait) {
  const timespec deadline = after(now(), 100 * kSecondNs);
  bool is_set = false;
  pthread_mutex_lock(&mutex_);
  std::thread setter([&] {
    pthread_mutex_lock(&mutex_);
    is_set = true;
    pthread_cond_signal(&condition_);
    pthread_mutex_unlock(&mutex_);
  });
  int result = 0;
  while (!is_set && result == 0) result = own_clockwait(&condition_, &mutex_, CLOCK_MONOTONIC, &deadline);
  pthread_mutex_unlock(&mutex_);
  setter.join();
  EXPECT_EQ(result, 0);
}

TEST_F(OldGlibcTest, RandomNumbersDiffer) {
  std::set<uint32_t> numbers;
  for (int i = 0; i < 64; ++i) numbers.insert(own_arc4random());
  EXPECT_GT(numbers.size(), 60u);
}

}  // namespace
}  // namespace tutti
