// Machine: the fake RDMA devices of this process. Requests wait in their queue pair until the network takes
// them, in an order between queue pairs that a seed decides: in turns of the calls that post and poll, and of
// a thread, so that a rank that sleeps is woken.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/rdma/provider/control.h"

namespace tutti::test::fake_verbs {

struct Queue : ibv_cq {
  std::deque<ibv_wc> entries;
  bool is_armed = false;
  uint64_t events_told = 0;
  uint64_t events_acknowledged = 0;
};

struct Work {
  ibv_send_wr request{};
  ibv_sge source{};
  std::vector<std::byte> copied;  ///< an inline payload
  bool is_inline = false;
};

struct Pair : ibv_qp {
  uint32_t number = 0;
  uint32_t peer = 0;
  ibv_qp_cap limits{};
  std::deque<Work> sends;
  size_t unpolled_sends = 0;  ///< requests whose entries are still taken
  std::deque<std::pair<uint64_t, ibv_sge>> receives;
};

struct Context : ibv_context {
  uint32_t device_number = 0;
  int event_pipe[2] = {-1, -1};
};

class Machine {
 public:
  static constexpr uint32_t kDevices = 2;
  static constexpr int kUsualWidth = 2;
  /// Of this process. The library's functions have no argument that could carry it.
  static Machine& instance();

  Machine();
  ~Machine();

  std::mutex mutex;
  ibv_device devices[kDevices] = {};
  bool port_is_up[kDevices] = {true, true};
  int port_mtu[kDevices] = {IBV_MTU_4096, IBV_MTU_4096};
  int port_width[kDevices] = {kUsualWidth, kUsualWidth};
  std::vector<Context*> contexts;
  std::map<uint32_t, Pair*> pairs;      ///< by number
  std::map<uint32_t, ibv_mr*> regions;  ///< by key
  std::map<uint32_t, std::byte*> maps;  ///< of those over a dma-buf: where it is mapped
  int dmabuf_error = 0;
  uint64_t memory_limit = UINT64_MAX;
  uint64_t good_requests_left = UINT64_MAX;
  ibv_wc_status failure = IBV_WC_GENERAL_ERR;
  bool is_held = false;
  bool is_ready_for_forks = false;  ///< ibv_fork_init came before all else, as it must
  struct Fault {
    uint64_t one_in = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
  };
  Fault faults[kDevices] = {};
  Seen seen;
  std::mt19937_64 random{1};
  uint32_t next_number = 100;

  // With the mutex held.
  /// Lets the network take up to so many requests.
  void step(uint64_t most);
  void wake_network() {
    ++calls_;
    wake_.notify_one();
  }
  uint64_t below(uint64_t bound) { return random() % bound; }
  void misuse(const char* what) {
    if (seen.misuse.empty()) seen.misuse = what;
  }
  /// Completes all requests of a pair with a flush error.
  void stop(Pair& pair);
  void push(Queue& queue, const ibv_wc& entry);
  void tell_event(uint32_t device, ibv_event_type type);

 private:
  bool take_one();
  bool take(Pair& pair);
  ibv_wc_status carry_out(Pair& pair, Pair* peer, const Work& work, bool& must_wait);
  ibv_wc_status deliver(Pair& peer, const Work& work, const std::byte* bytes);
  void complete(Pair& pair, const Work& work, ibv_wc_status status);
  const std::byte* source_of(const Work& work);
  std::byte* memory(uint32_t key, uint64_t address) const;
  bool reaches(uint32_t key, uint64_t address, uint64_t bytes, int rights);
  void run();

  std::condition_variable wake_;
  bool ends_ = false;
  uint64_t calls_ = 0;  ///< that may have brought work
  std::thread network_;
};

}  // namespace tutti::test::fake_verbs
