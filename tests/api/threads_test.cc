// Threads of the library that cannot be started, or in which something is thrown: errors like any other.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <future>
#include <new>
#include <optional>
#include <stdexcept>

#include "api/stream.h"
#include "tests/support/cluster.h"
#include "tests/support/failing_allocations.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

/// While it lives a thread's stack takes so much address space.
class Stacks {
 public:
  explicit Stacks(size_t bytes) {
    pthread_getattr_default_np(&before_);
    pthread_attr_t now;
    pthread_attr_init(&now);
    pthread_attr_setstacksize(&now, bytes);
    pthread_setattr_default_np(&now);
    pthread_attr_destroy(&now);
  }
  ~Stacks() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

 private:
  pthread_attr_t before_{};
};

// More than there is: no thread can be started.
constexpr size_t kTooMuch = size_t{1} << 47;

/// Address space that this process uses.
size_t used_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

std::string create_alone(tutti_comm_t** comm) {
  tutti_unique_id_t id;
  if (tutti_get_unique_id(&id) != TUTTI_SUCCESS ||
      tutti_comm_create(comm, 1, id, 0, nullptr) != TUTTI_SUCCESS)
    return tutti_last_error();
  return "";
}

// Goal: where the progress thread cannot be started the call says so, nothing is queued, and the caller's
// signals stay as they were. It once was queued all the same: the next call waited for ever.
TEST(ThreadsTest, ProgressThreadThatCannotStart) {
  if (sanitized()) GTEST_SKIP() << "sanitizers choose the stacks of threads";
  EXPECT_EQ(run_child([]() -> std::string {
              tutti_comm_t* comm = nullptr;
              if (std::string text = create_alone(&comm); !text.empty()) return text;
              tutti_host_stream_t* stream = nullptr;
              if (tutti_host_stream_create(&stream) != TUTTI_SUCCESS) return tutti_last_error();
              float value = 1;
              const auto sum = [&](tutti_stream_t where) {
                return tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, where);
              };
              std::string failures;
              {
                const Stacks stacks(kTooMuch);
                if (sum(tutti_stream_host(stream)) != TUTTI_SYSTEM_ERROR) failures += "no error; ";
                if (std::string(tutti_last_error()).find("progress thread") == std::string::npos)
                  failures += tutti_last_error();
              }
              sigset_t blocked;
              pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
              if (sigismember(&blocked, SIGUSR1) != 0) failures += "signals are blocked; ";
              if (sum(TUTTI_BLOCKING) != TUTTI_SUCCESS) failures += "a blocking call; ";
              if (tutti_host_stream_query(stream) != TUTTI_SUCCESS) failures += "the stream; ";
              if (sum(tutti_stream_host(stream)) != TUTTI_SUCCESS) failures += "a second try; ";
              if (tutti_host_stream_destroy(stream) != TUTTI_SUCCESS) failures += "destroy the stream; ";
              if (tutti_comm_destroy(comm) != TUTTI_SUCCESS) failures += "destroy; ";
              return failures;
            }),
            "");
}

// Goal: create_all where a rank's thread cannot be started: an error, and the ranks that have been started do
// not wait for it. Method: address space for two threads of four, and for none.
TEST(ThreadsTest, CreateAllWhoseThreadsCannotStart) {
  if (sanitized()) GTEST_SKIP() << "sanitizers choose the stacks of threads";
  constexpr size_t kStack = size_t{16} << 30;
  for (const size_t fitting : {2, 0}) {
    EXPECT_EQ(run_child([&]() -> std::string {
                tutti_comm_t* alone = nullptr;
                if (std::string text = create_alone(&alone); !text.empty()) return text;
                std::string failures;
                const Stacks stacks(kStack);
                const size_t most = used_bytes() + fitting * kStack + kStack / 2;
                const rlimit limit{most, most};
                setrlimit(RLIMIT_AS, &limit);
                tutti_comm_t* comms[4] = {};
                if (tutti_comm_create_all(comms, 4, nullptr) != TUTTI_SYSTEM_ERROR) failures += "no error; ";
                if (std::string(tutti_last_error()).find("starting") == std::string::npos)
                  failures += tutti_last_error();
                for (const tutti_comm_t* comm : comms) {
                  if (comm != nullptr) failures += "a communicator was left; ";
                }
                if (tutti_comm_destroy(alone) != TUTTI_SUCCESS) failures += "destroy; ";
                return failures;
              }),
              "")
        << fitting << " threads";
  }
}

TEST(ThreadsTest, SetUpThreadThatCannotStart) {
  if (sanitized()) GTEST_SKIP() << "sanitizers choose the stacks of threads";
  EXPECT_EQ(run_child([]() -> std::string {
              tutti_unique_id_t id;
              if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) return tutti_last_error();
              const Stacks stacks(kTooMuch);
              tutti_config_t config = TUTTI_CONFIG_INIT;
              config.nonblocking = 1;
              tutti_comm_t* comm = nullptr;
              if (tutti_comm_create(&comm, 1, id, 0, &config) != TUTTI_SYSTEM_ERROR) return "no error";
              return comm == nullptr ? "" : "a communicator was left";
            }),
            "");
}

// Goal: what an operation throws is its failure, the stream's too, and the thread goes on.
TEST(ThreadsTest, WhatATaskThrowsIsItsFailure) {
  auto progress = ProgressThread::start();
  ASSERT_TRUE(progress.is_ok());
  const auto stream = std::make_shared<HostStream>();
  const auto push = [&](std::function<Status()> run) {
    EXPECT_TRUE((*progress)
                    ->push({.run = std::move(run), .cancelled = [] { return false; }, .streams = {stream}})
                    .is_ok());
  };
  push([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(stream->synchronize().code(), Code::kOutOfMemory);
  push([]() -> Status { throw std::runtime_error("thrown"); });
  const Status second = stream->synchronize();
  EXPECT_EQ(second.code(), Code::kInternal);
  EXPECT_EQ(second.text(), "thrown");
  push([] { return Status::ok(); });
  EXPECT_TRUE(stream->synchronize().is_ok());
  EXPECT_EQ((*progress)->pending(), 0u);
  EXPECT_EQ((*progress)->take_failure().code(), Code::kOutOfMemory);
}

// Goal: an operation ends without memory, and so does what waits for its end: the progress thread once ended
// the process.
TEST(ThreadsTest, AnOperationEndsWithoutMemory) {
  auto progress = ProgressThread::start();
  ASSERT_TRUE(progress.is_ok());
  const auto stream = std::make_shared<HostStream>();
  std::promise<void> noted;
  std::future<void> is_noted = noted.get_future();
  std::optional<FailingAllocations> shortage;  // of the progress thread, which makes it
  const Status failure(Code::kAborted, "aborted");
  const auto run = [&]() -> Status {
    is_noted.wait();
    shortage.emplace(0, UINT64_MAX);
    return failure;
  };
  EXPECT_TRUE(
      (*progress)->push({.run = run, .cancelled = [] { return false; }, .streams = {stream}}).is_ok());
  int told = 0;
  for (int notice = 0; notice < 3; ++notice) {
    stream->notify([&](const Status& result) { told += result.code() == Code::kAborted ? 1 : 0; });
  }
  noted.set_value();
  EXPECT_EQ(stream->synchronize().code(), Code::kAborted);
  EXPECT_EQ(told, 3);
}

// Goal: what a function that awaits a stream throws ends neither the thread nor the waits for the stream.
TEST(ThreadsTest, WhatANoticeThrowsIsForgotten) {
  HostStream stream;
  const uint64_t ticket = stream.take_handle();
  bool is_told = false;
  stream.notify([](const Status&) { throw std::runtime_error("thrown"); });
  stream.notify([&](const Status&) { is_told = true; });
  stream.complete(ticket, {});
  EXPECT_TRUE(is_told);
  EXPECT_TRUE(stream.synchronize().is_ok());
}

}  // namespace
}  // namespace tutti::test
