// StreamWatch: a thread that waits for streams in turn and notes when each was done, asleep meanwhile.
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
  /// `slots` is the number of streams that are told apart.
  explicit StreamWatch(size_t slots);
  /// Waits for the streams that are watched.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  /// Waits, from now on, for all that has been issued on `stream`. Throws Error.
  void watch(size_t slot, Stream& stream);
  /// Blocks until the slot's stream is done; returns when that was (now_ns). Throws Error when it failed.
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
