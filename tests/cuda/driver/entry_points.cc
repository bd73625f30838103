// cuGetProcAddress: how programs find the functions of the driver.
#include <array>
#include <cstring>

// First: it says which functions of cuda.h are exported.
#include "tests/cuda/driver/cuda_api.h"

#include "cuda/functions.h"
#include "tests/cuda/driver/settings.h"

namespace {

struct EntryPoint {
  const char* name;
  void* function;
};

// That it compiles shows that each function of the fake has the driver's type.
#define FAKE_ENTRY_POINT(member, function, type) \
  {#function, reinterpret_cast<void*>(static_cast<type>(&function))},
const EntryPoint kEntryPoints[] = {TUTTI_CUDA_FUNCTIONS(FAKE_ENTRY_POINT)
                                       TUTTI_CUDA_MULTICAST_FUNCTIONS(FAKE_ENTRY_POINT)};
#undef FAKE_ENTRY_POINT

}  // namespace

extern "C" CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t /*flags*/,
                                        CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || function == nullptr || version > fake_cuda::settings().version)
    return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  for (const EntryPoint& known : kEntryPoints) {
    if (std::strcmp(known.name, name) == 0) *function = known.function;
  }
  const bool found = *function != nullptr;
  if (status != nullptr) *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
