// Verbs: libibverbs, found at run time. Nothing links it: the same binary runs without RDMA.
//
// The members are the library's functions: `verbs.create_qp(...)` is ibv_create_qp. The calls of the data
// path (ibv_post_send, ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq) are inline in the header and reach the
// device's driver through its context, so they need no member. Do not call the header's other inline
// functions: they would link the library.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "core/result.h"

namespace tutti::rdma {

// F(member, function). The first list is in rdma-core 17 and newer. A library may lack functions of the
// second list: their members are then null.
// clang-format off
#define TUTTI_VERBS_FUNCTIONS(F)                    \
  F(get_device_list, ibv_get_device_list)           \
  F(free_device_list, ibv_free_device_list)         \
  F(get_device_name, ibv_get_device_name)           \
  F(open_device, ibv_open_device)                   \
  F(close_device, ibv_close_device)                 \
  F(query_device, ibv_query_device)                 \
  F(query_port, ibv_query_port)                     \
  F(query_gid, ibv_query_gid)                       \
  F(alloc_pd, ibv_alloc_pd)                         \
  F(dealloc_pd, ibv_dealloc_pd)                     \
  F(reg_mr, ibv_reg_mr)                             \
  F(dereg_mr, ibv_dereg_mr)                         \
  F(create_comp_channel, ibv_create_comp_channel)   \
  F(destroy_comp_channel, ibv_destroy_comp_channel) \
  F(create_cq, ibv_create_cq)                       \
  F(destroy_cq, ibv_destroy_cq)                     \
  F(get_cq_event, ibv_get_cq_event)                 \
  F(ack_cq_events, ibv_ack_cq_events)               \
  F(create_qp, ibv_create_qp)                       \
  F(modify_qp, ibv_modify_qp)                       \
  F(destroy_qp, ibv_destroy_qp)                     \
  F(get_async_event, ibv_get_async_event)           \
  F(ack_async_event, ibv_ack_async_event)

#define TUTTI_VERBS_OPTIONAL_FUNCTIONS(F)           \
  F(fork_init, ibv_fork_init)                       \
  F(query_gid_ex, _ibv_query_gid_ex)                \
  F(reg_dmabuf_mr, ibv_reg_dmabuf_mr)
// clang-format on

/// The table of functions. Thread-safe like the library; never unloaded.
class Verbs {
 public:
  /// Errors: kUnsupported: no library, or one that lacks a function; the text says what to do.
  static Result<std::unique_ptr<const Verbs>> find();

#define TUTTI_VERBS_MEMBER(member, function) decltype(&::function) member = nullptr;
  TUTTI_VERBS_FUNCTIONS(TUTTI_VERBS_MEMBER)
  TUTTI_VERBS_OPTIONAL_FUNCTIONS(TUTTI_VERBS_MEMBER)
#undef TUTTI_VERBS_MEMBER

 private:
  Verbs() = default;
};

}  // namespace tutti::rdma
