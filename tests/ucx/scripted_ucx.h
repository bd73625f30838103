// ScriptedUcx: a table of UCX's functions whose every answer the test decides. One at a time: the functions
// have no argument that could tell several apart.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "transports/ucx/ucp.h"

namespace tutti::test {

class ScriptedUcx {
 public:
  struct Message {
    std::vector<std::byte> head;
    std::vector<std::byte> data;
  };
  /// A receive of a rendezvous that has not ended.
  struct Filling {
    std::vector<ucp_dt_iov_t> places = {};
    ucp_am_recv_data_nbx_callback_t callback = nullptr;
    void* user = nullptr;
  };
  struct Send {
    ucp_send_nbx_callback_t callback = nullptr;
    void* user = nullptr;
  };

  ScriptedUcx() {
    current() = this;
    table_.config_read = [](const char*, const char*, ucp_config_t**) { return UCS_OK; };
    table_.config_release = [](ucp_config_t*) {};
    table_.init_version = [](unsigned, unsigned, const ucp_params_t*, const ucp_config_t*, ucp_context_h*) {
      return UCS_OK;
    };
    table_.cleanup = [](ucp_context_h) {};
    table_.context_print_info = [](ucp_context_h, FILE*) {};
    table_.worker_create = [](ucp_context_h, const ucp_worker_params_t*, ucp_worker_h*) { return UCS_OK; };
    table_.worker_destroy = [](ucp_worker_h) {};
    table_.worker_get_address = [](ucp_worker_h, ucp_address_t** address, size_t* bytes) {
      static char word[] = "worker";
      *address = reinterpret_cast<ucp_address_t*>(word);
      *bytes = sizeof(word);
      return UCS_OK;
    };
    table_.worker_release_address = [](ucp_worker_h, ucp_address_t*) {};
    table_.worker_get_efd = [](ucp_worker_h, int*) { return UCS_OK; };
    table_.worker_arm = [](ucp_worker_h) { return UCS_OK; };
    table_.worker_progress = [](ucp_worker_h) { return 0u; };
    table_.worker_set_am_recv_handler = [](ucp_worker_h, const ucp_am_handler_param_t*) { return UCS_OK; };
    table_.ep_create = [](ucp_worker_h, const ucp_ep_params_t* params, ucp_ep_h* endpoint) {
      current()->failure_ = params->err_handler;
      *endpoint = reinterpret_cast<ucp_ep_h>(current());
      return UCS_OK;
    };
    table_.ep_close_nbx = [](ucp_ep_h, const ucp_request_param_t*) -> ucs_status_ptr_t {
      current()->is_closed = true;
      current()->cancel();
      return nullptr;
    };
    table_.am_send_nbx = send;
    table_.am_recv_data_nbx = receive;
    table_.request_check_status = [](void*) { return UCS_OK; };
    table_.request_free = [](void*) {};
    table_.status_string = [](ucs_status_t) -> const char* { return "a status of the test"; };
  }
  ScriptedUcx(const ScriptedUcx&) = delete;
  ScriptedUcx& operator=(const ScriptedUcx&) = delete;

  const ucx::Ucp& table() const { return table_; }
  /// As UCX's error handler.
  void fail_endpoint(ucs_status_t status) {
    failure_.cb(failure_.arg, reinterpret_cast<ucp_ep_h>(this), status);
  }
  /// Ends the oldest rendezvous: fills its places with `byte`, or leaves them, if the status is an error.
  void end_filling(ucs_status_t status, std::byte byte) {
    const Filling filling = std::move(fillings.front());
    fillings.pop_front();
    size_t bytes = 0;
    for (const ucp_dt_iov_t& place : filling.places) {
      if (status == UCS_OK) std::memset(place.buffer, static_cast<int>(byte), place.length);
      bytes += place.length;
    }
    filling.callback(nullptr, status, bytes, filling.user);
  }
  void end_send(ucs_status_t status) {
    const Send one = waiting.front();
    waiting.pop_front();
    one.callback(nullptr, status, one.user);
  }

  std::vector<Message> sent;
  std::deque<Send> waiting;      ///< sends that have not completed
  std::deque<Filling> fillings;  ///< in their order
  bool holds_sends = false;      ///< sends stay waiting
  ucs_status_t send_answer = UCS_OK;
  bool is_closed = false;

 private:
  static ScriptedUcx*& current() {
    static ScriptedUcx* one = nullptr;
    return one;
  }
  static void append(std::vector<std::byte>& to, const void* from, size_t bytes) {
    const auto* start = static_cast<const std::byte*>(from);
    to.insert(to.end(), start, start + bytes);
  }
  static bool is_list(const ucp_request_param_t* params) {
    return (params->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0;
  }
  static void* request() { return current(); }

  static ucs_status_ptr_t send(ucp_ep_h, unsigned, const void* head, size_t head_bytes, const void* buffer,
                               size_t count, const ucp_request_param_t* params) {
    ScriptedUcx& self = *current();
    if (self.send_answer != UCS_OK) return UCS_STATUS_PTR(self.send_answer);
    Message message;
    append(message.head, head, head_bytes);
    if (is_list(params)) {
      const auto* parts = static_cast<const ucp_dt_iov_t*>(buffer);
      for (size_t i = 0; i < count; ++i) append(message.data, parts[i].buffer, parts[i].length);
    } else {
      append(message.data, buffer, count);
    }
    self.sent.push_back(std::move(message));
    if (!self.holds_sends) return nullptr;
    self.waiting.push_back({.callback = params->cb.send, .user = params->user_data});
    return request();
  }
  static ucs_status_ptr_t receive(ucp_worker_h, void*, void* buffer, size_t count,
                                  const ucp_request_param_t* params) try {
    Filling filling{.callback = params->cb.recv_am, .user = params->user_data};
    if (is_list(params)) {
      const auto* parts = static_cast<const ucp_dt_iov_t*>(buffer);
      filling.places.assign(parts, parts + count);
    } else {
      filling.places.push_back({.buffer = buffer, .length = count});
    }
    current()->fillings.push_back(std::move(filling));
    return request();
  } catch (...) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
  }
  void cancel() {
    while (!fillings.empty()) end_filling(UCS_ERR_CANCELED, {});
  }

  ucx::Ucp table_;
  ucp_err_handler_t failure_{};
};

}  // namespace tutti::test
