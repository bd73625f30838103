// Exported calls about the library itself: version, texts, parameters.
#include <charconv>
#include <cstring>
#include <limits>
#include <vector>

#include "core/kept_by_thread.h"
#include "plugins/nccl/communicator.h"
#include "plugins/nccl/settings.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

Result<const Parameter*> find_parameter(const char* key) {
  if (key == nullptr) return null_argument("key");
  for (const Parameter& parameter : parameters()) {
    if (std::strcmp(parameter.name, key) == 0) return &parameter;
  }
  return Status(
      Code::kInvalidArgument,
      format("argument key is \"%s\": ncclParamGetAllParameterKeys lists the parameters there are", key));
}

/// A handle points into the list of parameters.
Result<const Parameter*> parameter_of(ncclParamHandle_t handle) {
  for (const Parameter& parameter : parameters()) {
    if (static_cast<const void*>(&parameter) == static_cast<const void*>(handle)) return &parameter;
  }
  return Status(Code::kInvalidArgument, "argument h was not made by ncclParamBind");
}

template <class Number>
Status read_number(ncclParamHandle_t handle, Number* out) {
  if (out == nullptr) return null_argument("out");
  auto parameter = parameter_of(handle);
  TUTTI_TRY(parameter.status());
  const std::string text = parameter_value(**parameter);
  Number number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) {
    return {Code::kInvalidArgument, format("parameter %s is \"%s\": not a number of %zu bits",
                                           (*parameter)->name, text.c_str(), 8 * sizeof(Number))};
  }
  *out = number;
  return Status::ok();
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclGetVersion, int* version) {
  return guarded("ncclGetVersion", [&]() -> Status {
    if (version == nullptr) return null_argument("version");
    *version = NCCL_VERSION_CODE;
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(const char*, ncclGetErrorString, ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "CUDA error";
    case ncclSystemError: return "system error - ncclGetLastError or NCCL_DEBUG=WARN tells more";
    case ncclInternalError: return "internal error - a bug in tutti; ncclGetLastError tells more";
    case ncclInvalidArgument: return "invalid argument - ncclGetLastError or NCCL_DEBUG=WARN tells which";
    case ncclInvalidUsage: return "invalid usage - ncclGetLastError or NCCL_DEBUG=WARN tells more";
    case ncclRemoteError: return "remote error - a rank has died, aborted or did not come in time";
    case ncclInProgress: return "operation in progress";
    case ncclTimeout: return "timeout";
    case ncclNumResults: break;
  }
  return "unknown result code";
}

TUTTI_NCCL_CALL(const char*, ncclGetLastError, ncclComm_t comm) {
  std::string& text = KeptByThread<std::string, struct LastErrorText>::get();
  static_cast<void>(guarded("ncclGetLastError", [&]() -> Status {
    const Use use(comm);
    ErrorText newest = last_error_of_thread();
    if (use.status().is_ok()) {
      const std::scoped_lock lock(comm->mutex);
      if (comm->last_error.number > newest.number) newest = comm->last_error;
    }
    if (!use.status().is_ok() || newest.number == 0) newest = last_error();
    text = newest.text;
    return Status::ok();
  }));
  return text.c_str();
}

TUTTI_NCCL_CALL(void, ncclResetDebugInit) {}

// NCCL exports this name from 2.28 on, without a pNAME twin.
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal() {}

TUTTI_NCCL_CALL(ncclResult_t, ncclSetEncryption, const ncclEncryptionConfig_t* config) {
  return guarded("ncclSetEncryption", [&]() -> Status {
    if (config == nullptr) return null_argument("config");
    if (config->size < sizeof(ncclEncryptionConfig_t) || config->magic != NCCL_API_MAGIC) {
      return {
          Code::kInvalidArgument,
          "argument config is not an ncclEncryptionConfig_t: start from NCCL_ENCRYPTION_CONFIG_INITIALIZER"};
    }
    if (config->mode == NCCL_ENCRYPTION_MODE_NONE) return Status::ok();
    if (config->mode == NCCL_ENCRYPTION_MODE_PSK) {
      return not_implemented(
          "NCCL_ENCRYPTION_MODE_PSK is not implemented (TUTTI_TLS=1 encrypts what travels between hosts, "
          "with "
          "keys from the unique id)");
    }
    return {Code::kInvalidArgument,
            format("config.mode is %d: it is not an ncclEncryptionMode_t", config->mode)};
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclParamBind, ncclParamHandle_t* out, const char* key) {
  return guarded("ncclParamBind", [&]() -> Status {
    if (out == nullptr) return null_argument("out");
    auto parameter = find_parameter(key);
    TUTTI_TRY(parameter.status());
    *out = reinterpret_cast<ncclParamHandle_t>(const_cast<Parameter*>(*parameter));
    return Status::ok();
  });
}

#define TUTTI_NCCL_PARAM_NUMBER(suffix, type)                                           \
  TUTTI_NCCL_CALL(ncclResult_t, ncclParamGet##suffix, ncclParamHandle_t h, type* out) { \
    return guarded("ncclParamGet" #suffix, [&] { return read_number(h, out); });        \
  }
TUTTI_NCCL_PARAM_NUMBER(I8, int8_t)
TUTTI_NCCL_PARAM_NUMBER(I16, int16_t)
TUTTI_NCCL_PARAM_NUMBER(I32, int32_t)
TUTTI_NCCL_PARAM_NUMBER(I64, int64_t)
TUTTI_NCCL_PARAM_NUMBER(U8, uint8_t)
TUTTI_NCCL_PARAM_NUMBER(U16, uint16_t)
TUTTI_NCCL_PARAM_NUMBER(U32, uint32_t)
TUTTI_NCCL_PARAM_NUMBER(U64, uint64_t)
#undef TUTTI_NCCL_PARAM_NUMBER

TUTTI_NCCL_CALL(ncclResult_t, ncclParamGetStr, ncclParamHandle_t h, const char** out) {
  return guarded("ncclParamGetStr", [&]() -> Status {
    if (out == nullptr) return null_argument("out");
    auto parameter = parameter_of(h);
    TUTTI_TRY(parameter.status());
    std::string& text = KeptByThread<std::string, struct ParameterText>::get();
    text = parameter_value(**parameter);
    *out = text.c_str();
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclParamGet, ncclParamHandle_t h, void* out, int maxLen, int* len) {
  return guarded("ncclParamGet", [&]() -> Status {
    if (out == nullptr) return null_argument("out");
    if (len == nullptr) return null_argument("len");
    auto parameter = parameter_of(h);
    TUTTI_TRY(parameter.status());
    const std::string text = parameter_value(**parameter);
    if (maxLen < 0 || text.size() > static_cast<size_t>(maxLen)) {
      return {Code::kInvalidArgument,
              format("argument maxLen is %d: the value has %zu bytes", maxLen, text.size())};
    }
    std::memcpy(out, text.data(), text.size());
    *len = static_cast<int>(text.size());
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclParamGetParameter, const char* key, const char** value, int* valueLen) {
  return guarded("ncclParamGetParameter", [&]() -> Status {
    if (value == nullptr) return null_argument("value");
    auto parameter = find_parameter(key);
    TUTTI_TRY(parameter.status());
    std::string& text = KeptByThread<std::string, struct NamedParameterText>::get();
    text = parameter_value(**parameter);
    *value = text.c_str();
    if (valueLen != nullptr) *valueLen = static_cast<int>(text.size());
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclParamGetAllParameterKeys, const char*** table, int* tableLen) {
  return guarded("ncclParamGetAllParameterKeys", [&]() -> Status {
    if (table == nullptr) return null_argument("table");
    if (tableLen == nullptr) return null_argument("tableLen");
    auto& keys = KeptByThread<std::vector<const char*>>::get();
    keys.clear();
    for (const Parameter& parameter : parameters()) keys.push_back(parameter.name);
    *table = keys.data();
    *tableLen = static_cast<int>(keys.size());
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(void, ncclParamDumpAll) {
  static_cast<void>(guarded("ncclParamDumpAll", [] {
    for (const Parameter& parameter : parameters()) {
      log_always(std::string("NCCL INFO ") + parameter.name + "=" + parameter_value(parameter));
    }
    return Status::ok();
  }));
}
