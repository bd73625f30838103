// Objects of threads: each thread its own, gone with the thread, and there even after that.
#include "core/kept_by_thread.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace tutti {
namespace {

struct Counted {
  static inline int made = 0;
  static inline int gone = 0;
  Counted() { ++made; }
  ~Counted() { ++gone; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int value = 7;
};

using Kept = KeptByThread<Counted, struct InOneThread>;

TEST(KeptByThreadTest, EachThreadHasItsOwnAndItGoesWithTheThread) {
  Counted::made = Counted::gone = 0;
  std::thread([] {
    Kept::get().value = 1;
    EXPECT_EQ(Kept::get().value, 1);
    std::thread([] { EXPECT_EQ(Kept::get().value, 7); }).join();
  }).join();
  EXPECT_EQ(Counted::made, 2);
  EXPECT_EQ(Counted::gone, 2);
}

using Late = KeptByThread<Counted, struct UsedLate>;

/// Uses the thread's object when that has gone: made before it, this goes after it.
struct Last {
  ~Last() {
    value = Late::get().value;
    again = &Late::get();
  }
  static inline int value = 0;
  static inline Counted* again = nullptr;
};

TEST(KeptByThreadTest, MayBeUsedAfterTheThreadsObjectsHaveGone) {
  Counted::made = Counted::gone = 0;
  std::thread([] {
    static thread_local Last last;
    static_cast<void>(&last);
    Late::get().value = 1;
  }).join();
  EXPECT_EQ(Counted::made, 2);
  EXPECT_EQ(Counted::gone, 1);
  EXPECT_EQ(Last::value, 7);
  delete Last::again;  // else a leak, as it is meant
}

TEST(KeptByThreadTest, TagsTellObjectsOfOneTypeApart) {
  std::string& one = KeptByThread<std::string, struct One>::get();
  std::string& two = KeptByThread<std::string, struct Two>::get();
  EXPECT_NE(&one, &two);
}

}  // namespace
}  // namespace tutti
