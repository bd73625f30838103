#include "trainer/stream_watch.h"

#include "trainer/error.h"
#include "trainer/timeline.h"

namespace tutti::trainer {

StreamWatch::StreamWatch(size_t slots) : ends_(slots), thread_([this] { loop(); }) {}

StreamWatch::~StreamWatch() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StreamWatch::watch(size_t slot, Stream& stream) {
  stream.mark();
  const std::scoped_lock lock(mutex_);
  ends_[slot] = {};
  tasks_.push_back({slot, &stream});
  changed_.notify_all();
}

uint64_t StreamWatch::wait(size_t slot) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ends_[slot].done; });
  if (!ends_[slot].problem.empty()) throw Error(ends_[slot].problem);
  return ends_[slot].end_ns;
}

void StreamWatch::loop() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    End end{.done = true};
    try {
      task.stream->wait();
    } catch (const Error& error) {
      end.problem = error.what();
    }
    end.end_ns = now_ns();
    lock.lock();
    ends_[task.slot] = std::move(end);
    changed_.notify_all();
  }
}

}  // namespace tutti::trainer
