// StreamWatch: a thread that waits for streams in turn, asleep, and records the time when each is done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/memory.h"

namespace tutti::trainer {

class StreamWatch {
 public:
  /// `slots`: the number of streams.
  explicit StreamWatch(size_t slots);
  /// Waits for all watched streams.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  /// From now on waits for all operations issued on `stream`. Throws Error.
  void watch(size_t slot, Stream& stream);
  /// Blocks until the slot's stream is done, and returns that time (now_ns). Throws Error if the stream
  /// failed.
  uint64_t wait(size_t slot);

 private:
  struct Task {
    size_t slot;
    Stream* stream;
  };
  struct End {
    bool done = false;
    uint64_t end_ns = 0;
    std::string problem = {};
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::vector<End> ends_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::trainer
