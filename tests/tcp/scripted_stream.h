// ScriptedStream: a stream whose every answer the test decides.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "transports/tcp/stream.h"

namespace tutti::test {

class ScriptedStream final : public tcp::Stream {
 public:
  struct Write {
    size_t bytes;
    bool without_copy;
  };

  ssize_t write(const iovec* pieces, size_t count, bool without_copy) override {
    size_t room = SIZE_MAX;
    if (!write_answers.empty()) {
      const ssize_t answer = write_answers.front();
      write_answers.pop_front();
      if (answer < 0) {
        refused.push_back({0, without_copy});
        return answer;
      }
      room = static_cast<size_t>(answer);
    }
    size_t taken = 0;
    for (size_t i = 0; i < count && room > 0; ++i) {
      const size_t part = std::min(room, pieces[i].iov_len);
      const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
      written.insert(written.end(), from, from + part);
      room -= part;
      taken += part;
    }
    writes.push_back({taken, without_copy});
    return static_cast<ssize_t>(taken);
  }

  ssize_t read(const iovec* pieces, size_t count) override {
    ++reads;
    size_t most = SIZE_MAX;
    if (!read_answers.empty()) {
      const ssize_t answer = read_answers.front();
      if (answer <= 0 || !incoming.empty()) read_answers.pop_front();
      if (answer <= 0) return answer;
      most = static_cast<size_t>(answer);
    }
    return incoming.empty() ? at_end : give(pieces, count, most);
  }

  bool can_write_in_place() const override { return in_place; }
  uint64_t burst_bytes() const override { return burst; }
  void hold_small(bool on) override { holds = on; }
  void acknowledge() override { ++acknowledgements; }
  bool next_completion(tcp::Completion& completion) override {
    if (completions.empty()) return false;
    completion = completions.front();
    completions.pop_front();
    return true;
  }
  void finish() override { finished = true; }
  uint64_t silent_ms() const override { return silence_ms; }
  uint64_t unconfirmed_bytes() const override { return 0; }
  uint64_t confirmed_bytes() override {
    ++questions;
    return confirmed;
  }
  bool is_loopback() const override { return false; }
  void close() override { closed = true; }
  void forget() override {}
  Result<bool> shake_hands() override { return true; }
  short awaited_events() const override { return 0; }
  int descriptor() const override { return -1; }
  const std::string& address() const override { return name; }
  const std::string& own_address() const override { return own_name; }

  void feed(const std::vector<std::byte>& bytes) {
    incoming.insert(incoming.end(), bytes.begin(), bytes.end());
  }

  std::deque<ssize_t> write_answers;  ///< bytes to take, or -errno; when used up, all is taken
  std::deque<ssize_t> read_answers;   ///< most bytes to give of `incoming`, 0 or -errno; when used up, all
  ssize_t at_end = -EAGAIN;           ///< the answer when `incoming` is used up too
  std::vector<std::byte> written;
  std::deque<std::byte> incoming;
  std::vector<Write> writes;
  std::vector<Write> refused;
  int reads = 0;
  std::deque<tcp::Completion> completions;
  bool holds = false;  ///< small writes
  int acknowledgements = 0;
  bool in_place = false;
  uint64_t burst = 0;
  bool finished = false;
  bool closed = false;
  uint64_t confirmed = 0;
  int questions = 0;  ///< for `confirmed`
  uint64_t silence_ms = 0;
  std::string name = "192.0.2.7:4711";
  std::string own_name = "192.0.2.1:1147";

 private:
  ssize_t give(const iovec* pieces, size_t count, size_t most) {
    size_t given = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t part = std::min({most - given, pieces[i].iov_len, incoming.size()});
      std::copy_n(incoming.begin(), part, static_cast<std::byte*>(pieces[i].iov_base));
      incoming.erase(incoming.begin(), incoming.begin() + static_cast<ptrdiff_t>(part));
      given += part;
    }
    return static_cast<ssize_t>(given);
  }
};

}  // namespace tutti::test
