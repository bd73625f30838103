// What a test tells the fake RDMA devices, and what they have seen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tutti::test::fake_verbs {

#define TUTTI_FAKE_VERBS __attribute__((visibility("default")))

/// Two devices, both with one RoCE port on the loopback interface. Call it while no device is open.
TUTTI_FAKE_VERBS void reset(uint64_t seed);
/// The MTU that a device's port tells, as enum ibv_mtu.
TUTTI_FAKE_VERBS void set_mtu(uint32_t device, int mtu);
/// The width that a device's port tells, as in ibv_port_attr: 2 (4 lanes) at first.
TUTTI_FAKE_VERBS void set_width(uint32_t device, int width);
/// The device's folder in /sys/class/infiniband.
TUTTI_FAKE_VERBS void set_folder(uint32_t device, const std::string& path);
/// A port that is down loses every packet, and its devices tell so.
TUTTI_FAKE_VERBS void set_port(uint32_t device, bool is_up);
/// Each further request on any queue pair fails with this status (ibv_wc_status), after `requests` good ones.
TUTTI_FAKE_VERBS void fail_after(uint64_t requests, int status);
/// One of so many requests of the device's queue pairs fails with the status, by chance; 0: none.
TUTTI_FAKE_VERBS void fail_sometimes(uint32_t device, uint64_t one_in, int status);
/// Holds all requests back, as a slow network.
TUTTI_FAKE_VERBS void hold(bool on);
/// The process at the other end of all queue pairs ends: from now on requests stay without an answer
/// (`is_silent`) or fail. Calls `cut`, which ends its sockets, before any rank can look at its devices.
TUTTI_FAKE_VERBS void die(bool is_silent, const std::function<void()>& cut);
/// Memory that may be registered; 0: ibv_reg_mr fails as at the limit of locked memory.
TUTTI_FAKE_VERBS void set_memory_limit(uint64_t bytes);
/// ibv_reg_dmabuf_mr fails with this error number; 0: it does not.
TUTTI_FAKE_VERBS void set_dmabuf_error(int error);
/// An asynchronous event (ibv_event_type) of a device's port.
TUTTI_FAKE_VERBS void raise_event(uint32_t device, int type);

/// What the last queue pair to be connected was told.
struct Path {
  uint32_t mtu = 0;  ///< as enum ibv_mtu
  uint32_t service_level = 0;
  uint32_t traffic_class = 0;
  uint32_t gid_index = 0;
  uint32_t timeout = 0;
  uint32_t tries = 0;
};

struct Seen {
  uint64_t sends = 0;
  uint64_t inline_sends = 0;
  uint64_t writes = 0;
  uint64_t waits_for_receives = 0;  ///< a send found none posted
  uint64_t receive_posts = 0;       ///< calls that posted receives
  uint64_t registered_bytes = 0;    ///< now
  uint64_t refused_registrations = 0;
  uint64_t dmabuf_regions = 0;  ///< now
  uint64_t dmabuf_registrations = 0;
  uint64_t dmabuf_written = 0;  ///< bytes that came to memory behind a dma-buf
  uint64_t open_objects = 0;    ///< contexts, domains, regions, queues now
  Path path;
  std::string misuse;  ///< the first call that breaks a rule of verbs; empty: none
};
TUTTI_FAKE_VERBS Seen seen();

}  // namespace tutti::test::fake_verbs
