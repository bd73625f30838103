#include "trainer/timeline.h"

#include <chrono>
#include <nlohmann/json.hpp>

namespace tutti::trainer {

uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::string Timeline::to_json(int rank) const {
  using Json = nlohmann::json;
  std::string text;
  const auto append = [&](const Json& event) { text += (text.empty() ? "" : ",\n") + event.dump(); };
  append({{"ph", "M"},
          {"name", "process_name"},
          {"pid", rank},
          {"args", {{"name", "rank " + std::to_string(rank)}}}});
  for (const auto& [row, name] :
       {std::pair(Row::kCompute, "compute"), {Row::kCommunication, "communication"}})
    append({{"ph", "M"},
            {"name", "thread_name"},
            {"pid", rank},
            {"tid", static_cast<int>(row)},
            {"args", {{"name", name}}}});
  for (const Event& event : events_) {
    Json json = {{"ph", "X"},
                 {"name", event.name},
                 {"cat", event.category},
                 {"pid", rank},
                 {"tid", static_cast<int>(event.row)},
                 {"ts", static_cast<double>(event.start_ns) / 1e3},
                 {"dur", static_cast<double>(event.end_ns - event.start_ns) / 1e3}};
    if (event.bytes > 0) json["args"] = {{"bytes", event.bytes}};
    append(json);
  }
  return text;
}

}  // namespace tutti::trainer
