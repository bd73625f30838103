// HandlePool: no address is given twice, and dead handles cost no memory.
#include "api/handle_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/failing_allocations.h"
#include "tests/support/scope.h"
#include "tutti/tutti.h"

namespace tutti::test {
namespace {

struct Handle {
  std::atomic<uint64_t> magic{7};
  std::array<uint64_t, 60> rest{};
};

// Handles were given again after 256 others: a dead one then worked on a later object.
TEST(HandlePoolTest, NoAddressIsGivenTwice) {
  HandlePool<Handle> pool;
  std::set<Handle*> given;
  Handle* const first = pool.take();
  first->magic = 0;
  pool.rest(first);
  Handle* const lives = pool.take();
  for (int i = 0; i < 5000; ++i) {
    Handle* const handle = pool.take();
    EXPECT_TRUE(given.insert(handle).second);
    EXPECT_EQ(handle->magic, 7u);
    handle->magic = 0;
    pool.rest(handle);
  }
  EXPECT_FALSE(given.contains(first));
  EXPECT_EQ(first->magic, 0u);
  EXPECT_EQ(lives->magic, 7u) << "a live handle lost its contents with its dead neighbours";
  for (const Handle* dead : given) ASSERT_EQ(dead->magic, 0u);
}

// Goal: a program that makes and ends many objects does not grow by their handles.
TEST(HandlePoolTest, DeadHandlesCostNoMemory) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  HandlePool<Handle> pool;
  const long before_kb = holdings().resident_kb;
  for (int i = 0; i < 100'000; ++i) {
    Handle* const handle = pool.take();
    handle->rest.fill(1);
    pool.rest(handle);
  }
  // Their handles have 50 MB.
  EXPECT_LT(holdings().resident_kb - before_kb, 5000);
}

// Goal: giving back the first handle of a page, too, needs no memory: an abort or a destroy ends with it.
TEST(HandlePoolTest, AHandleIsGivenBackWithoutMemory) {
  HandlePool<Handle> pool;
  Handle* const handle = pool.take();
  handle->magic = 0;
  const FailingAllocations shortage(0, UINT64_MAX);
  pool.rest(handle);
  EXPECT_FALSE(FailingAllocations::have_failed());
}

TEST(HandlePoolTest, NamesDiffer) {
  EXPECT_NE(new_name<Handle>(), nullptr);
  EXPECT_NE(new_name<Handle>(), new_name<Handle>());
}

// Goal: what a program destroyed long ago is still refused.
TEST(HandlePoolTest, NoLaterObjectAnswersToADeadHandle) {
  const auto body = []() -> std::string {
    tutti_comm_t* dead = nullptr;
    tutti_host_stream_t* dead_stream = nullptr;
    if (tutti_comm_create_all(&dead, 1, nullptr) != TUTTI_SUCCESS) return tutti_last_error();
    if (tutti_host_stream_create(&dead_stream) != TUTTI_SUCCESS) return tutti_last_error();
    tutti_comm_destroy(dead);
    tutti_host_stream_destroy(dead_stream);
    std::vector<tutti_comm_t*> live;
    std::vector<tutti_host_stream_t*> streams;
    for (int i = 0; i < 600; ++i) {
      tutti_comm_t* comm = nullptr;
      tutti_host_stream_t* stream = nullptr;
      if (tutti_comm_create_all(&comm, 1, nullptr) != TUTTI_SUCCESS) return tutti_last_error();
      if (tutti_host_stream_create(&stream) != TUTTI_SUCCESS) return tutti_last_error();
      if (comm == dead || stream == dead_stream) return "an address was given twice";
      if (i % 100 == 99) {
        live.push_back(comm);
        streams.push_back(stream);
        continue;
      }
      tutti_comm_destroy(comm);
      tutti_host_stream_destroy(stream);
    }
    std::string failures;
    if (tutti_barrier(dead, TUTTI_BLOCKING) != TUTTI_INVALID_USAGE)
      failures += "the dead communicator works; ";
    if (tutti_host_stream_synchronize(dead_stream) == TUTTI_SUCCESS) failures += "the dead stream works; ";
    for (tutti_comm_t* comm : live) {
      if (tutti_comm_destroy(comm) != TUTTI_SUCCESS) failures += "destroy; ";
    }
    for (tutti_host_stream_t* stream : streams) {
      if (tutti_host_stream_destroy(stream) != TUTTI_SUCCESS) failures += "destroy a stream; ";
    }
    return failures;
  };
  EXPECT_EQ(run_child(body), "");
}

}  // namespace
}  // namespace tutti::test
