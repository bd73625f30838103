#include "tests/rdma/provider/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tutti::test::fake_verbs {

Machine& Machine::instance() {
  static Machine machine;
  return machine;
}

Machine::Machine() {
  for (uint32_t i = 0; i < kDevices; ++i) {
    devices[i].node_type = IBV_NODE_CA;
    std::snprintf(devices[i].name, sizeof(devices[i].name), "fake%u", i);
  }
  network_ = std::thread([this] { run(); });
}

Machine::~Machine() {
  {
    const std::lock_guard lock(mutex);
    ends_ = true;
    wake_.notify_one();
  }
  network_.join();
}

void Machine::run() {
  std::unique_lock lock(mutex);
  while (!ends_) {
    const uint64_t calls = calls_;
    if (!take_one()) {
      wake_.wait(lock, [&] { return ends_ || calls_ != calls; });
      continue;
    }
    // Let the ranks look between two requests.
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

void Machine::step(uint64_t most) {
  for (uint64_t i = 0; i < most && take_one(); ++i) {
  }
}

/// Takes a request of any pair that can go on; false: there is none.
bool Machine::take_one() {
  if (is_held) return false;
  std::vector<Pair*> ready;
  for (const auto& [number, pair] : pairs) {
    if (!pair->sends.empty()) ready.push_back(pair);
  }
  while (!ready.empty()) {
    const size_t choice = below(ready.size());
    if (take(*ready[choice])) return true;
    ready[choice] = ready.back();
    ready.pop_back();
  }
  return false;
}

/// False: it has to wait.
bool Machine::take(Pair& pair) {
  const Work work = pair.sends.front();
  const auto found = pairs.find(pair.peer);
  Pair* peer = found != pairs.end() ? found->second : nullptr;
  bool must_wait = false;
  const ibv_wc_status status = carry_out(pair, peer, work, must_wait);
  if (must_wait) return false;
  pair.sends.pop_front();
  complete(pair, work, status);
  if (status != IBV_WC_SUCCESS) stop(pair);
  return true;
}

ibv_wc_status Machine::carry_out(Pair& pair, Pair* peer, const Work& work, bool& must_wait) {
  if (good_requests_left == 0) return failure;
  const Fault& fault = faults[static_cast<Context*>(pair.context)->device_number];
  if (fault.one_in > 0 && below(fault.one_in) == 0) return fault.status;
  const bool is_up = port_is_up[static_cast<Context*>(pair.context)->device_number];
  const bool is_lost = !is_up || peer == nullptr || peer->peer != pair.number ||
                       (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS) ||
                       !port_is_up[static_cast<Context*>(peer->context)->device_number];
  if (is_lost) return IBV_WC_RETRY_EXC_ERR;
  const std::byte* bytes = source_of(work);
  if (bytes == nullptr && work.source.length > 0) return IBV_WC_LOC_PROT_ERR;
  if (work.request.opcode == IBV_WR_RDMA_WRITE) {
    const auto& target = work.request.wr.rdma;
    if (!reaches(target.rkey, target.remote_addr, work.source.length, IBV_ACCESS_REMOTE_WRITE)) {
      stop(*peer);
      return IBV_WC_REM_ACCESS_ERR;
    }
    std::memcpy(memory(target.rkey, target.remote_addr), bytes, work.source.length);
    ++seen.writes;
    if (maps.contains(target.rkey)) seen.dmabuf_written += work.source.length;
  } else if (peer->receives.empty()) {
    ++seen.waits_for_receives;
    must_wait = true;
    return IBV_WC_SUCCESS;
  } else if (const ibv_wc_status status = deliver(*peer, work, bytes); status != IBV_WC_SUCCESS) {
    return status;
  }
  if (good_requests_left != UINT64_MAX) --good_requests_left;
  return IBV_WC_SUCCESS;
}

ibv_wc_status Machine::deliver(Pair& peer, const Work& work, const std::byte* bytes) {
  const auto [id, target] = peer.receives.front();
  peer.receives.pop_front();
  if (target.length < work.source.length ||
      !reaches(target.lkey, target.addr, target.length, IBV_ACCESS_LOCAL_WRITE)) {
    misuse("a receive that is too short, or not in registered memory");
    stop(peer);
    return IBV_WC_REM_INV_REQ_ERR;
  }
  if (work.source.length > 0) std::memcpy(reinterpret_cast<void*>(target.addr), bytes, work.source.length);
  ++seen.sends;
  if (work.is_inline) ++seen.inline_sends;
  ibv_wc entry{};
  entry.wr_id = id;
  entry.opcode = IBV_WC_RECV;
  entry.byte_len = work.source.length;
  entry.imm_data = work.request.imm_data;
  entry.wc_flags = IBV_WC_WITH_IMM;
  entry.qp_num = peer.number;
  push(*static_cast<Queue*>(peer.recv_cq), entry);
  return IBV_WC_SUCCESS;
}

void Machine::complete(Pair& pair, const Work& work, ibv_wc_status status) {
  const bool is_told = status != IBV_WC_SUCCESS || (work.request.send_flags & IBV_SEND_SIGNALED) != 0;
  if (!is_told) return;
  ibv_wc entry{};
  entry.wr_id = work.request.wr_id;
  entry.status = status;
  entry.opcode = work.request.opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
  entry.qp_num = pair.number;
  push(*static_cast<Queue*>(pair.send_cq), entry);
}

void Machine::stop(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  while (!pair.sends.empty()) {
    const Work work = pair.sends.front();
    pair.sends.pop_front();
    complete(pair, work, IBV_WC_WR_FLUSH_ERR);
  }
  for (; !pair.receives.empty(); pair.receives.pop_front()) {
    ibv_wc entry{};
    entry.wr_id = pair.receives.front().first;
    entry.status = IBV_WC_WR_FLUSH_ERR;
    entry.qp_num = pair.number;
    push(*static_cast<Queue*>(pair.recv_cq), entry);
  }
}

void Machine::push(Queue& queue, const ibv_wc& entry) {
  if (queue.entries.size() >= static_cast<size_t>(queue.cqe)) misuse("a completion queue has overflowed");
  queue.entries.push_back(entry);
  if (!queue.is_armed) return;
  queue.is_armed = false;
  // The other end of the channel's descriptor, which only this file knows: see create_comp_channel.
  ibv_cq* told = &queue;
  if (write(queue.channel->refcnt, &told, sizeof(told)) == sizeof(told)) ++queue.events_told;
}

void Machine::tell_event(uint32_t device, ibv_event_type type) {
  for (Context* context : contexts) {
    if (context->device_number != device) continue;
    if (write(context->event_pipe[1], &type, sizeof(type)) != sizeof(type)) misuse("too many events unread");
  }
}

const std::byte* Machine::source_of(const Work& work) {
  if (work.is_inline) return work.copied.data();
  if (work.source.length == 0) return nullptr;
  if (reaches(work.source.lkey, work.source.addr, work.source.length, 0))
    return memory(work.source.lkey, work.source.addr);
  misuse("a send from memory that is not registered");
  return nullptr;
}

/// What lies at an address of a region that reaches it.
std::byte* Machine::memory(uint32_t key, uint64_t address) const {
  const auto found = maps.find(key);
  if (found == maps.end()) return reinterpret_cast<std::byte*>(address);
  return found->second + (address - reinterpret_cast<uint64_t>(regions.at(key)->addr));
}

bool Machine::reaches(uint32_t key, uint64_t address, uint64_t bytes, int rights) {
  const auto found = regions.find(key);
  if (found == regions.end()) return false;
  const ibv_mr& region = *found->second;
  const auto begin = reinterpret_cast<uint64_t>(region.addr);
  const int granted = static_cast<int>(region.handle);
  return address >= begin && bytes <= region.length && address - begin <= region.length - bytes &&
         (granted & rights) == rights;
}

void reset(uint64_t seed) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  for (bool& is_up : machine.port_is_up) is_up = true;
  for (int& mtu : machine.port_mtu) mtu = IBV_MTU_4096;
  for (int& width : machine.port_width) width = Machine::kUsualWidth;
  for (ibv_device& device : machine.devices) device.ibdev_path[0] = '\0';
  machine.memory_limit = machine.good_requests_left = UINT64_MAX;
  machine.dmabuf_error = 0;
  machine.is_held = false;
  for (Machine::Fault& fault : machine.faults) fault = {};
  const Seen before = machine.seen;
  machine.seen = {};
  machine.seen.registered_bytes = before.registered_bytes;
  machine.seen.open_objects = before.open_objects;
  machine.seen.dmabuf_regions = before.dmabuf_regions;
  machine.random = std::mt19937_64(seed);
}

void set_port(uint32_t device, bool is_up) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.port_is_up[device] = is_up;
  machine.tell_event(device, is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  machine.wake_network();
}

void set_mtu(uint32_t device, int mtu) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.port_mtu[device] = mtu;
}

void set_width(uint32_t device, int width) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.port_width[device] = width;
}

void set_folder(uint32_t device, const std::string& path) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  std::snprintf(machine.devices[device].ibdev_path, sizeof(machine.devices[device].ibdev_path), "%s",
                path.c_str());
}

void fail_after(uint64_t requests, int status) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.good_requests_left = requests;
  machine.failure = static_cast<ibv_wc_status>(status);
}

void fail_sometimes(uint32_t device, uint64_t one_in, int status) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.faults[device] = {.one_in = one_in, .status = static_cast<ibv_wc_status>(status)};
}

void hold(bool on) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.is_held = on;
  machine.wake_network();
}

void die(bool is_silent, const std::function<void()>& cut) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.is_held = is_silent;
  machine.good_requests_left = 0;
  machine.failure = IBV_WC_RETRY_EXC_ERR;
  cut();
}

void set_memory_limit(uint64_t bytes) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.memory_limit = bytes;
}

void set_dmabuf_error(int error) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.dmabuf_error = error;
}

void raise_event(uint32_t device, int type) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.tell_event(device, static_cast<ibv_event_type>(type));
}

Seen seen() {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  return machine.seen;
}

}  // namespace tutti::test::fake_verbs
