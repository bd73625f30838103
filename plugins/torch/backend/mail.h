// Point to point as torch knows it: sends and receives that may be posted in any order, with tags, and
// receives from any rank.
//
// Each ordered pair of ranks has its own communicator of two ranks, which the pair's first message makes: so
// a send to one rank never waits for another rank. The sender makes the id and puts it into the store. A
// message is a header (tag, bytes), then its bytes. The receiver reads headers while a receive is posted. A
// message that no posted receive matches waits in memory. One thread, the clerk, makes the communicators and
// watches deadlines; all else happens in the threads that call and in tutti's progress threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "work.h"

namespace tutti_torch {

class Mail {
 public:
  Mail(int rank, int size, const c10::intrusive_ptr<c10d::Store>& store);
  /// Ends as `stop` does.
  ~Mail();

  /// `work` is complete when the memory of the tensor is free again. A send to the own rank is an error.
  void send(const at::Tensor& tensor, int peer, int tag, const c10::intrusive_ptr<Work>& work);
  /// `work` is complete when the message is there. source kAny: from any rank.
  void receive(const at::Tensor& tensor, int source, int tag, const c10::intrusive_ptr<Work>& work);
  /// Ends all sends and receives that are not complete with an error, on both sides. Later calls fail.
  void stop(const std::string& why);

  static constexpr int kAny = -1;

 private:
  using Clock = std::chrono::steady_clock;
  struct Header {
    uint64_t tag;
    uint64_t bytes;
  };
  struct Outgoing {
    c10::intrusive_ptr<Work> work;
    Memory memory;
    Header header;
    Clock::time_point deadline;
  };
  struct Posted {
    c10::intrusive_ptr<Work> work;
    Memory memory;
    int source;
    uint64_t tag;
    Clock::time_point deadline;
  };
  struct Arrived {
    uint64_t tag;
    std::vector<char> bytes;
  };
  enum class State { kUnused, kWanted, kCreating, kReady, kFailed };
  /// One direction of a pair.
  struct Line {
    State state = State::kUnused;
    tutti_comm_t* comm = nullptr;
    tutti_host_stream_t* stream = nullptr;
    std::string failure;
    std::list<Outgoing> waiting;  ///< sends, until the communicator is there
    Header header{};              ///< of the receive under way
    bool listening = false;
    std::deque<Arrived> arrived;
  };
  struct Pending;

  std::string key(int from, int to) const;
  void transmit(Line& line, int peer, Outgoing message);
  void listen(int source);
  void on_header(int source, tutti_result_t result, const char* text);
  void take_message(int source);
  void on_payload(Pending& pending, tutti_result_t result, const char* text);
  void deliver(int source, Arrived message);
  bool take_arrived(int source, const Posted& posted);
  std::list<Posted>::iterator match(int source, uint64_t tag);
  bool wants(int source) const;
  void fail_line(int peer, bool is_incoming, const std::string& why);
  void notify(tutti_host_stream_t* stream, std::unique_ptr<Pending> pending);
  static void on_done(void* context, tutti_result_t result, const char* text);

  void start_clerk();
  void run_clerk();
  void look_for_senders(std::unique_lock<std::recursive_mutex>& lock);
  bool advance_creation(Line& line, int peer, bool is_incoming);
  bool expire(Clock::time_point now, Clock::time_point& next);
  void begin(Line& line, const tutti_unique_id_t& id, int pair_rank);

  const int rank_;
  const int size_;
  const c10::intrusive_ptr<c10d::Store> store_;
  /// Recursive: a notification may come in the thread that asks for it, inside the call.
  std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Line> out_;
  std::vector<Line> in_;
  std::list<Posted> posted_;
  std::string stopped_;  ///< why; empty: not stopped
  bool is_stopping_ = false;
  std::thread clerk_;
};

}  // namespace tutti_torch
