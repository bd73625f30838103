// Timeline: the events of each rank, in the format of chrome://tracing and https://ui.perfetto.dev.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::trainer {

/// Nanoseconds of a clock that all processes of a host share.
uint64_t now_ns();

/// One rank's events. One thread at a time.
class Timeline {
 public:
  enum class Row { kCompute, kCommunication };

  struct Event {
    std::string name;
    std::string category;
    Row row = Row::kCompute;
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    uint64_t bytes = 0;  ///< 0: not shown
  };

  void add(Event event) { events_.push_back(std::move(event)); }
  const std::vector<Event>& events() const { return events_; }
  /// The events as members of a JSON array, without its brackets. A rank is a process of the trace.
  std::string to_json(int rank) const;

 private:
  std::vector<Event> events_;
};

/// Records its lifetime as an event, if there is a timeline.
class Span {
 public:
  Span(Timeline* timeline, const std::string& name, const char* category)
      : timeline_(timeline), name_(timeline != nullptr ? name : std::string()), category_(category) {
    if (timeline_ != nullptr) start_ns_ = now_ns();
  }
  ~Span() {
    if (timeline_ != nullptr)
      timeline_->add({name_, category_, Timeline::Row::kCompute, start_ns_, now_ns()});
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Timeline* timeline_;
  std::string name_;
  const char* category_;
  uint64_t start_ns_ = 0;
};

}  // namespace tutti::trainer
