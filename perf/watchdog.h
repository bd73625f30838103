// -T: ends the process when one row takes too long, and names the row.
//
// The library's own deadline, set to the same time, usually expires first and names the missing rank. The
// watchdog is for a row whose operations all end, but too slowly.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tutti::perf {

class Watchdog {
 public:
  using Expire = std::function<void(const std::string& row)>;

  /// limit 0: never expires and starts no thread. The watchdog's thread calls `expire` once.
  Watchdog(std::chrono::milliseconds limit, Expire expire);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Starts the time of the next row. The expiry names the row.
  void begin(std::string row);
  void end();

 private:
  void watch();

  const std::chrono::milliseconds limit_;
  const Expire expire_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string row_;
  std::chrono::steady_clock::time_point deadline_{};
  bool armed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::perf
