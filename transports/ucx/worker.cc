#include "transports/ucx/worker.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "transports/ucx/errors.h"
#include "transports/ucx/wire.h"

namespace tutti::ucx {
namespace {

struct Family {
  std::string_view prefix;  ///< of the names of UCX's transports
  uint32_t fabric;
};
constexpr std::array kFamilies = {Family{"rc_", fabric::kVerbs},    Family{"dc_", fabric::kVerbs},
                                  Family{"ud_", fabric::kVerbs},    Family{"srd", fabric::kEfa},
                                  Family{"ugni_", fabric::kGemini}, Family{"cxi", fabric::kSlingshot}};

constexpr const char* kDevices = "/sys/class/infiniband";

/// What `print` writes.
template <typename Print>
std::string printed(Print&& print) {
  char* text = nullptr;
  size_t bytes = 0;
  std::FILE* const file = open_memstream(&text, &bytes);
  if (file == nullptr) return {};
  print(file);
  std::fclose(file);
  std::string result(text, bytes);
  std::free(text);
  return result;
}

/// Turns that a drain may take, should peers send without end.
constexpr int kDrainTurnsMost = 10'000;

}  // namespace

uint32_t fabrics_in(std::string_view resources) {
  uint32_t fabrics = 0;
  for (const Family& family : kFamilies) {
    for (size_t at = resources.find(family.prefix); at != std::string_view::npos;
         at = resources.find(family.prefix, at + 1)) {
      const size_t end = resources.find_first_of(" \n", at);
      const std::string_view word = resources.substr(at, end - at);
      const bool is_first = at > 0 && resources[at - 1] == ' ';
      if (is_first && word.find('/') != std::string_view::npos) fabrics |= family.fabric;
    }
  }
  return fabrics;
}

bool has_software_device(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string place = std::filesystem::canonical(entry.path(), error).string();
    if (place.find("/devices/virtual/") != std::string::npos) return true;
  }
  return false;
}

Result<std::unique_ptr<Worker>> Worker::open(const Ucp& ucp) {
  std::unique_ptr<Worker> worker(new Worker(ucp));
  TUTTI_TRY(worker->make_context());
  TUTTI_TRY(worker->make_worker());
  worker->fabrics_ = worker->find_fabrics();
  return worker;
}

Worker::~Worker() {
  if (worker_ != nullptr) ucp_.worker_destroy(worker_);
  if (context_ != nullptr) ucp_.cleanup(context_);
}

Status Worker::make_context() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error(ucp_, "reading UCX's settings", status);
  if (has_software_device(kDevices)) avoid_datagrams(config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucp_.init_version(Ucp::kMajor, Ucp::kMinor, &params, config, &context_);
  ucp_.config_release(config);
  return status == UCS_OK ? Status::ok() : ucx_error(ucp_, "opening UCX", status);
}

/// Soft-RoCE of Linux 6.1 loses unreliable datagrams (ibv_ud_pingpong hangs too), by which UCX connects
/// unless it has TCP for that. What the user has chosen stays.
void Worker::avoid_datagrams(ucp_config_t* config) const {
  const std::string settings =
      printed([&](std::FILE* file) { ucp_.config_print(config, file, nullptr, UCS_CONFIG_PRINT_CONFIG); });
  if (settings.find("UCX_TLS=all\n") == std::string::npos) return;
  (void)ucp_.config_modify(config, "TLS", "^ud_verbs");  // a failure leaves UCX's default
}

Status Worker::make_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_.worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return ucx_error(ucp_, "making a worker of UCX", status);
  status = ucp_.worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return ucx_error(ucp_, "making a worker of UCX that can be waited for", status);
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucp_.worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return ucx_error(ucp_, "asking for the address of a worker of UCX", status);
  address_.resize(bytes);
  std::memcpy(address_.data(), address, bytes);
  ucp_.worker_release_address(worker_, address);
  return Status::ok();
}

uint32_t Worker::find_fabrics() const {
  return fabrics_in(printed([this](std::FILE* file) { ucp_.context_print_info(context_, file); }));
}

Status Worker::receive_with(ucp_am_recv_callback_t take, void* argument) {
  ucp_am_handler_param_t params{};
  params.field_mask =
      UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = kMessageId;
  params.cb = take;
  params.arg = argument;
  const ucs_status_t status = ucp_.worker_set_am_recv_handler(worker_, &params);
  return status == UCS_OK ? Status::ok() : ucx_error(ucp_, "receiving messages of UCX", status);
}

void Worker::drain() {
  for (int turn = 0; turn < kDrainTurnsMost && progress(); ++turn) {
  }
}

}  // namespace tutti::ucx
