// Ucp: the functions of UCX (libucp), found at run time. Nothing links it: the same binary runs without UCX.
//
// The members are the library's functions: `ucp.ep_create(...)` is ucp_ep_create. A test may fill a table of
// its own. Do not call the header's inline functions: they would link the library.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "core/result.h"

namespace tutti::ucx {

// F(member, function). All of them are in UCX 1.13 and newer.
// clang-format off
#define TUTTI_UCP_FUNCTIONS(F)                                   \
  F(get_version, ucp_get_version)                                \
  F(config_read, ucp_config_read)                                \
  F(config_release, ucp_config_release)                          \
  F(config_print, ucp_config_print)                              \
  F(config_modify, ucp_config_modify)                            \
  F(init_version, ucp_init_version)                              \
  F(cleanup, ucp_cleanup)                                        \
  F(context_print_info, ucp_context_print_info)                  \
  F(worker_create, ucp_worker_create)                            \
  F(worker_destroy, ucp_worker_destroy)                          \
  F(worker_get_address, ucp_worker_get_address)                  \
  F(worker_release_address, ucp_worker_release_address)          \
  F(worker_get_efd, ucp_worker_get_efd)                          \
  F(worker_arm, ucp_worker_arm)                                  \
  F(worker_progress, ucp_worker_progress)                        \
  F(worker_set_am_recv_handler, ucp_worker_set_am_recv_handler)  \
  F(ep_create, ucp_ep_create)                                    \
  F(ep_close_nbx, ucp_ep_close_nbx)                              \
  F(am_send_nbx, ucp_am_send_nbx)                                \
  F(am_recv_data_nbx, ucp_am_recv_data_nbx)                      \
  F(request_check_status, ucp_request_check_status)              \
  F(request_free, ucp_request_free)                              \
  F(status_string, ucs_status_string)
// clang-format on

/// The table of functions. Thread-safe like the library, which is never unloaded.
struct Ucp {
  /// The oldest interface that has all of this, whatever headers the build used.
  static constexpr unsigned kMajor = 1;
  static constexpr unsigned kMinor = 13;

  /// Errors: kUnsupported: no library, or an older one; the text says what to do.
  static Result<std::unique_ptr<const Ucp>> find();

#define TUTTI_UCP_MEMBER(member, function) decltype(&::function) member = nullptr;
  TUTTI_UCP_FUNCTIONS(TUTTI_UCP_MEMBER)
#undef TUTTI_UCP_MEMBER
};

}  // namespace tutti::ucx
