// The functions of libibverbs that tutti calls, on fake devices.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/rdma/provider/machine.h"

namespace tutti::test::fake_verbs {
namespace {

/// Requests that the network takes while a rank posts or polls.
constexpr uint64_t kStepsMost = 6;
constexpr int kGids = 4;

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** refused) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto& pair = *static_cast<Pair*>(qp);
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
    if (request->num_sge > 1 || pair.sends.size() >= pair.limits.max_send_wr) return ENOMEM;
    Work work;
    work.request = *request;
    if (request->num_sge == 1) work.source = request->sg_list[0];
    work.is_inline = (request->send_flags & IBV_SEND_INLINE) != 0;
    if (work.is_inline) {
      if (work.source.length > pair.limits.max_inline_data) return EINVAL;
      const auto* bytes = reinterpret_cast<const std::byte*>(work.source.addr);
      work.copied.assign(bytes, bytes + work.source.length);
    }
    pair.sends.push_back(std::move(work));
  }
  if (pair.state == IBV_QPS_ERR) machine.stop(pair);
  machine.step(machine.below(kStepsMost));
  machine.wake_network();
  return 0;
}

int post_receive(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** refused) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto& pair = *static_cast<Pair*>(qp);
  ++machine.seen.receive_posts;
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (pair.state == IBV_QPS_RESET || request->num_sge != 1) return EINVAL;
    if (pair.receives.size() >= pair.limits.max_recv_wr) return ENOMEM;
    pair.receives.emplace_back(request->wr_id, request->sg_list[0]);
  }
  if (pair.state == IBV_QPS_ERR) machine.stop(pair);
  machine.wake_network();
  return 0;
}

int poll_queue(ibv_cq* cq, int most, ibv_wc* entries) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.step(machine.below(kStepsMost));
  auto& queue = *static_cast<Queue*>(cq);
  int count = 0;
  for (; count < most && !queue.entries.empty(); ++count) {
    entries[count] = queue.entries.front();
    queue.entries.pop_front();
  }
  return count;
}

int arm_queue(ibv_cq* cq, int /*solicited_only*/) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  static_cast<Queue*>(cq)->is_armed = true;
  return 0;
}

/// RoCE v1 and v2 of a link-local address, then of 127.0.0.1. The interface is lo.
void fill_gid(int index, ibv_gid_entry* entry) {
  *entry = {};
  entry->gid_index = static_cast<uint32_t>(index);
  entry->port_num = 1;
  entry->gid_type = index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  entry->ndev_ifindex = 1;
  constexpr uint8_t kLinkLocal[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1};
  constexpr uint8_t kMapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  std::memcpy(entry->gid.raw, index < 2 ? kLinkLocal : kMapped, sizeof(entry->gid.raw));
}

}  // namespace
}  // namespace tutti::test::fake_verbs

using tutti::test::fake_verbs::Context;
using tutti::test::fake_verbs::Machine;
using tutti::test::fake_verbs::Pair;
using tutti::test::fake_verbs::Queue;

#undef ibv_query_port
#undef ibv_reg_mr

#pragma GCC visibility push(default)
extern "C" {

int ibv_fork_init(void) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.is_ready_for_forks = true;
  return 0;
}

ibv_device** ibv_get_device_list(int* count) {
  Machine& machine = Machine::instance();
  auto** list = new ibv_device*[Machine::kDevices + 1];
  for (uint32_t i = 0; i < Machine::kDevices; ++i) list[i] = &machine.devices[i];
  list[Machine::kDevices] = nullptr;
  if (count != nullptr) *count = Machine::kDevices;
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* ibv_open_device(ibv_device* device) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  if (!machine.is_ready_for_forks) machine.misuse("a device was opened before ibv_fork_init");
  auto* context = new Context();
  context->device = device;
  context->device_number = static_cast<uint32_t>(device - machine.devices);
  context->ops.post_send = tutti::test::fake_verbs::post_send;
  context->ops.post_recv = tutti::test::fake_verbs::post_receive;
  context->ops.poll_cq = tutti::test::fake_verbs::poll_queue;
  context->ops.req_notify_cq = tutti::test::fake_verbs::arm_queue;
  if (pipe2(context->event_pipe, O_CLOEXEC) != 0) {
    delete context;
    return nullptr;
  }
  context->async_fd = context->event_pipe[0];
  machine.contexts.push_back(context);
  ++machine.seen.open_objects;
  return context;
}

int ibv_close_device(ibv_context* device) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto* context = static_cast<Context*>(device);
  std::erase(machine.contexts, context);
  for (const int fd : context->event_pipe) close(fd);
  delete context;
  --machine.seen.open_objects;
  return 0;
}

int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* facts) {
  *facts = {};
  facts->phys_port_cnt = 1;
  facts->max_cqe = 1 << 20;
  return 0;
}

int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* facts) {
  if (port != 1) return EINVAL;
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  ibv_port_attr found{};
  found.state =
      machine.port_is_up[static_cast<Context*>(context)->device_number] ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  found.max_mtu = IBV_MTU_4096;
  found.active_mtu = static_cast<ibv_mtu>(machine.port_mtu[static_cast<Context*>(context)->device_number]);
  found.gid_tbl_len = tutti::test::fake_verbs::kGids;
  found.link_layer = IBV_LINK_LAYER_ETHERNET;
  found.active_width =
      static_cast<uint8_t>(machine.port_width[static_cast<Context*>(context)->device_number]);
  found.active_speed = 32;
  std::memcpy(static_cast<void*>(facts), &found, offsetof(ibv_port_attr, port_cap_flags2));
  return 0;
}

int ibv_query_gid(ibv_context* /*context*/, uint8_t /*port*/, int index, ibv_gid* gid) {
  ibv_gid_entry entry{};
  if (index < 0 || index >= tutti::test::fake_verbs::kGids) return -1;
  tutti::test::fake_verbs::fill_gid(index, &entry);
  *gid = entry.gid;
  return 0;
}

int _ibv_query_gid_ex(ibv_context* /*context*/, uint32_t /*port*/, uint32_t index, ibv_gid_entry* entry,
                      uint32_t /*flags*/, size_t /*entry_size*/) {
  if (index >= tutti::test::fake_verbs::kGids) return ENODATA;
  tutti::test::fake_verbs::fill_gid(static_cast<int>(index), entry);
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto* domain = new ibv_pd();
  domain->context = context;
  ++machine.seen.open_objects;
  return domain;
}

int ibv_dealloc_pd(ibv_pd* domain) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  delete domain;
  --machine.seen.open_objects;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t bytes, int rights) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  if (machine.seen.registered_bytes + bytes > machine.memory_limit) {
    ++machine.seen.refused_registrations;
    errno = ENOMEM;
    return nullptr;
  }
  auto* region = new ibv_mr();
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->handle = static_cast<uint32_t>(rights);
  region->lkey = region->rkey = machine.next_number++;
  machine.regions[region->lkey] = region;
  machine.seen.registered_bytes += bytes;
  ++machine.seen.open_objects;
  return region;
}

/// A dma-buf of the fake CUDA driver is an anonymous file, which the device maps for itself.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t address, int file,
                          int rights) {
  constexpr uint64_t kPage = 4096;
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  errno = machine.dmabuf_error;
  if (errno != 0) return nullptr;
  if (offset % kPage != address % kPage)
    machine.misuse("ibv_reg_dmabuf_mr: offset and address differ in their page");
  void* const map =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  if (map == MAP_FAILED) return nullptr;
  auto* region = new ibv_mr();
  region->context = domain->context;
  region->pd = domain;
  region->addr = reinterpret_cast<void*>(address);
  region->length = bytes;
  region->handle = static_cast<uint32_t>(rights);
  region->lkey = region->rkey = machine.next_number++;
  machine.regions[region->lkey] = region;
  machine.maps[region->lkey] = static_cast<std::byte*>(map);
  ++machine.seen.dmabuf_regions;
  ++machine.seen.dmabuf_registrations;
  ++machine.seen.open_objects;
  return region;
}

int ibv_dereg_mr(ibv_mr* region) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.regions.erase(region->lkey);
  if (const auto map = machine.maps.find(region->lkey); map != machine.maps.end()) {
    munmap(map->second, region->length);
    machine.maps.erase(map);
    --machine.seen.dmabuf_regions;
  } else {
    machine.seen.registered_bytes -= region->length;
  }
  delete region;
  --machine.seen.open_objects;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  auto* channel = new ibv_comp_channel();
  channel->context = context;
  channel->fd = ends[0];
  channel->refcnt = ends[1];  // the end to write; a user of verbs does not look at this field
  ++machine.seen.open_objects;
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  close(channel->fd);
  close(channel->refcnt);
  delete channel;
  --machine.seen.open_objects;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                      int /*vector*/) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto* queue = new Queue();
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = cq_context;
  queue->cqe = entries;
  ++machine.seen.open_objects;
  return queue;
}

int ibv_destroy_cq(ibv_cq* cq) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto* queue = static_cast<Queue*>(cq);
  if (queue->events_told != queue->events_acknowledged)
    machine.misuse("a completion queue was destroyed with events that are not acknowledged");
  for (const auto& [number, pair] : machine.pairs) {
    if (pair->send_cq == cq || pair->recv_cq == cq) machine.misuse("a completion queue in use was destroyed");
  }
  delete queue;
  --machine.seen.open_objects;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  // Blocks or not, as the user has set the descriptor.
  if (read(channel->fd, cq, sizeof(*cq)) != sizeof(*cq)) return -1;
  *cq_context = (*cq)->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  static_cast<Queue*>(cq)->events_acknowledged += count;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* facts) {
  constexpr uint32_t kMostInline = 200;  // less than users like, so that they ask again
  if (facts->cap.max_inline_data > kMostInline) {
    errno = EINVAL;
    return nullptr;
  }
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto* pair = new Pair();
  pair->context = domain->context;
  pair->pd = domain;
  pair->send_cq = facts->send_cq;
  pair->recv_cq = facts->recv_cq;
  pair->number = pair->qp_num = machine.next_number++;
  pair->limits = facts->cap;
  pair->state = IBV_QPS_RESET;
  machine.pairs[pair->number] = pair;
  ++machine.seen.open_objects;
  return pair;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* change, int mask) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto& pair = *static_cast<Pair*>(qp);
  const ibv_qp_state state = pair.state;
  const ibv_qp_state next = change->qp_state;
  const bool is_legal = next == IBV_QPS_ERR || (state == IBV_QPS_RESET && next == IBV_QPS_INIT) ||
                        (state == IBV_QPS_INIT && next == IBV_QPS_RTR) ||
                        (state == IBV_QPS_RTR && next == IBV_QPS_RTS);
  if (!is_legal) return EINVAL;
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = change->dest_qp_num;
  if ((mask & IBV_QP_AV) != 0) {
    machine.seen.path.mtu = change->path_mtu;
    machine.seen.path.service_level = change->ah_attr.sl;
    machine.seen.path.traffic_class = change->ah_attr.grh.traffic_class;
    machine.seen.path.gid_index = change->ah_attr.grh.sgid_index;
  }
  if ((mask & IBV_QP_TIMEOUT) != 0) {
    machine.seen.path.timeout = change->timeout;
    machine.seen.path.tries = change->retry_cnt;
  }
  pair.state = next;
  if (next == IBV_QPS_ERR) machine.stop(pair);
  machine.wake_network();
  return 0;
}

int ibv_destroy_qp(ibv_qp* qp) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  auto* pair = static_cast<Pair*>(qp);
  machine.pairs.erase(pair->number);
  delete pair;
  --machine.seen.open_objects;
  machine.wake_network();
  return 0;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  ibv_event_type type{};
  if (read(context->async_fd, &type, sizeof(type)) != sizeof(type)) return -1;
  *event = {};
  event->event_type = type;
  event->element.port_num = 1;
  return 0;
}

void ibv_ack_async_event(ibv_async_event* /*event*/) {}

}  // extern "C"
#pragma GCC visibility pop
