// Products on a GPU, against stubs of CUDA's libraries (stub_gpu.h): what is called in which order, with
// which shapes, and what becomes of errors. What is computed is compared with the host's BLAS.
#include "trainer/cuda_blas.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "tests/support/cluster.h"
#include "tests/trainer/stub_gpu.h"
#include "tests/trainer/team_run.h"
#include "trainer/cuda_functions.h"
#include "trainer/error.h"
#include "trainer/random.h"

#if __has_include(<cublas_v2.h>) && __has_include(<cuda.h>)
#include <cublas_v2.h>
#include <cuda.h>
#define HAS_TOOLKIT 1
#endif

namespace tutti::trainer {
namespace {

using test::error_of;
using test::StubGpu;

CudaLibraries stubs() {
  const std::string folder = STUB_FOLDER;
  return {.driver = {folder + "/libcuda.so.1"}, .cublas = {folder + "/libcublas.so.13"}};
}

/// Runs `body`, which returns its failures, in a process of its own that has the stubs. Skips the test where
/// this program was taken elsewhere without them.
void with_gpu(const std::function<std::string(StubGpu&)>& body) {
  if (!std::filesystem::exists(stubs().driver[0])) GTEST_SKIP() << STUB_FOLDER << " holds no stubs";
  EXPECT_EQ(test::run_child([&]() -> std::string {
              void* driver = ::dlopen(stubs().driver[0].c_str(), RTLD_NOW);
              if (driver == nullptr) return ::dlerror();
              return body(*static_cast<StubGpu*>(::dlsym(driver, "stub_gpu")));
            }),
            "");
}

Matrix random_matrix(size_t rows, size_t columns, uint64_t seed) {
  Matrix matrix(rows, columns);
  Random random(seed);
  for (size_t i = 0; i < matrix.size(); ++i) matrix.data()[i] = static_cast<float>(random.normal());
  return matrix;
}

/// A product inside larger matrices, by `product` and by the host; what differs, result's surroundings
/// included.
std::string compare(const Product& product, size_t rows, size_t columns, size_t inner,
                    ProductOptions options) {
  constexpr size_t kMargin = 3;
  const auto block_of = [](Matrix& whole, size_t some_rows, size_t some_columns) {
    return Block{whole.row(1) + 2, some_rows, some_columns, whole.columns()};
  };
  const auto whole_of = [](size_t some_rows, size_t some_columns, uint64_t seed) {
    return random_matrix(some_rows + kMargin, some_columns + kMargin, seed);
  };
  const size_t left_rows = options.transpose_left ? inner : rows;
  const size_t left_columns = options.transpose_left ? rows : inner;
  const size_t right_rows = options.transpose_right ? columns : inner;
  const size_t right_columns = options.transpose_right ? inner : columns;
  Matrix left = whole_of(left_rows, left_columns, 1);
  Matrix right = whole_of(right_rows, right_columns, 2);
  Matrix found = whole_of(rows, columns, 3);
  Matrix wanted = found;
  const Block a = block_of(left, left_rows, left_columns);
  const Block b = block_of(right, right_rows, right_columns);
  product(a, b, block_of(found, rows, columns), options);
  multiply(a, b, block_of(wanted, rows, columns), options);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::abs(found.data()[i] - wanted.data()[i]) < 1e-4F))
      return std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(inner) +
             ": number " + std::to_string(i) + " is " + std::to_string(found.data()[i]) + ", not " +
             std::to_string(wanted.data()[i]) + "\n";
  return "";
}

// Goal: a GPU's products are the host's. Method: every way to transpose, add and scale, over shapes that grow
// and shrink, empty ones and single rows among them, as blocks of larger matrices.
TEST(CudaBlasTest, ComputesWhatTheHostDoes) {
  with_gpu([](StubGpu&) {
    const Device device = find_device("cuda", 0, stubs());
    std::string failures;
    for (const auto& [rows, columns, inner] : std::vector<std::array<size_t, 3>>{
             {2, 3, 4}, {17, 5, 9}, {1, 1, 1}, {1, 8, 3}, {8, 1, 3}, {0, 3, 4}, {3, 0, 4}, {3, 4, 0}})
      for (int flags = 0; flags < 8; ++flags)
        failures += compare(device.product, rows, columns, inner,
                            {.transpose_left = (flags & 1) != 0,
                             .transpose_right = (flags & 2) != 0,
                             .accumulate = (flags & 4) != 0,
                             .scale = (flags & 4) != 0 ? 1.0F : 0.5F});
    return failures;
  });
}

// Goal: the libraries are used as they ask to be: started first, memory given back, everything closed; a
// product of the same shape allocates nothing, and the result's old content goes to the GPU only where it is
// needed.
TEST(CudaBlasTest, CallsAreMadeInOrderAndEverythingIsGivenBack) {
  with_gpu([](StubGpu& gpu) -> std::string {
    {
      CudaBlas blas(std::make_shared<const Gpu>(0, stubs()), stubs());
      const std::string start =
          "cuInit cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDevicePrimaryCtxRetain cublasCreate_v2 ";
      if (!gpu.calls.starts_with(start)) return gpu.calls;
      Matrix left = random_matrix(4, 4, 1);
      Matrix result(4, 4);
      blas.multiply(left.block(), left.block(), result.block(), {});
      gpu.calls.clear();
      blas.multiply(left.block(), left.block(), result.block(), {});
      if (gpu.calls != "cublasSetMatrix cublasSetMatrix cublasSgemm_v2 cublasGetMatrix ") return gpu.calls;
      gpu.calls.clear();
      blas.multiply(left.block(), left.block(), result.block(), {.accumulate = true});
      if (gpu.calls != "cublasSetMatrix cublasSetMatrix cublasSetMatrix cublasSgemm_v2 cublasGetMatrix ")
        return gpu.calls;
      // What a larger product outgrows goes back at the end: to free it would wait for all of the GPU's work.
      Matrix large = random_matrix(40, 40, 1);
      Matrix large_result(40, 40);
      blas.multiply(large.block(), large.block(), large_result.block(), {});
      if (gpu.calls.find("cuMemFree_v2") != std::string::npos) return gpu.calls;
      gpu.calls.clear();
    }
    if (!gpu.calls.starts_with("cublasDestroy_v2 cuMemFree_v2 ") ||
        !gpu.calls.ends_with(" cuDevicePrimaryCtxRelease_v2 "))
      return gpu.calls;
    return gpu.live_bytes == 0 && gpu.context_count == 0 && gpu.handle_count == 0 ? ""
                                                                                  : "something is left open";
  });
}

// Goal: ranks of a host take its GPUs in turn, and a rank's products may be asked for by another thread than
// made it.
TEST(CudaBlasTest, RanksShareTheGpus) {
  with_gpu([](StubGpu& gpu) -> std::string {
    const Device device = find_device("cuda", 5, stubs());
    if (gpu.device != 1 || device.about != "cuBLAS on GPU 1 (stub)") return device.about;
    std::string failures = "not run";
    std::thread([&] { failures = compare(device.product, 3, 3, 3, {}); }).join();
    return failures;
  });
}

// Goal: every call that can fail becomes an error that says what was tried, and nothing stays open. Method:
// each function fails in turn, while a GPU is opened.
TEST(CudaBlasTest, EveryFailureIsNamedAndLeavesNothingOpen) {
  with_gpu([](StubGpu& gpu) {
    std::string failures;
    for (const auto& [function, code, text] : std::vector<std::tuple<const char*, int, const char*>>{
             {"cuInit", 100, "CUDA: starting the driver: no CUDA-capable device is detected (100)"},
             {"cuDeviceGetCount", 999, "counting GPUs: unknown error (999)"},
             {"cuDevicePrimaryCtxRetain", 2, "GPU 0 (stub): opening a context: out of memory (2)"},
             {"cublasCreate_v2", 3, "starting: another status (3)"},
             {"cuMemAlloc_v2", 2, "memory for a matrix of 4 bytes: out of memory (2)"},
             {"cublasSetMatrix", 11, "copying to the GPU: CUBLAS_STATUS_MAPPING_ERROR (11)"},
             {"cublasSgemm_v2", 8, "multiplying: another status (8)"},
             {"cublasGetMatrix", 11, "copying from the GPU: CUBLAS_STATUS_MAPPING_ERROR (11)"}}) {
      gpu.failing = function;
      gpu.code = code;
      const std::string error = error_of([] { find_device("cuda", 0, stubs()); });
      if (error.find(text) == std::string::npos) failures += std::string(function) + ": '" + error + "'\n";
      if (gpu.context_count != 0 || gpu.handle_count != 0 || gpu.live_bytes != 0)
        failures += std::string("something is left open after ") + function + "\n";
    }
    return failures;
  });
}

// Goal: memory that runs out is an error of that product; smaller ones go on.
TEST(CudaBlasTest, MemoryThatRunsOutIsAnErrorOfThatProduct) {
  with_gpu([](StubGpu& gpu) -> std::string {
    const Device device = find_device("cuda", 0, stubs());
    gpu.memory_bytes = 4000;
    const std::string error = error_of([&] { (void)compare(device.product, 40, 40, 40, {}); });
    if (error.find("memory for a matrix of 6400 bytes: out of memory (2)") == std::string::npos) return error;
    return compare(device.product, 5, 5, 5, {});
  });
}

// Goal: without a GPU that works, `cuda` is refused with the reason and `auto` computes on the host and says
// why.
TEST(FindDeviceTest, WithoutAGpuTheHostServesUnlessCudaWasAskedFor) {
  with_gpu([](StubGpu& gpu) {
    std::string failures;
    const auto check = [&](const CudaLibraries& libraries, const std::string& reason) {
      const std::string refused = error_of([&] { find_device("cuda", 0, libraries); });
      if (refused.find("--device cuda: no GPU can be used: ") != 0 ||
          refused.find(reason) == std::string::npos)
        failures += "cuda: '" + refused + "', not '" + reason + "'\n";
      const Device host = find_device("auto", 0, libraries);
      if (host.about.find("OpenBLAS (no GPU: ") != 0 || host.about.find(reason) == std::string::npos)
        failures += "auto: '" + host.about + "', not '" + reason + "'\n";
      failures += compare(host.product, 3, 4, 5, {});
    };
    CudaLibraries libraries = stubs();
    libraries.driver = {"libabsent.so.1"};
    check(libraries, "libabsent.so.1: cannot open shared object file");
    libraries = stubs();
    libraries.cublas = {"libabsent.so.1", "libm.so.6"};
    check(libraries, "CUDA's libraries are too old: they lack cublasCreate_v2");
    gpu.gpu_count = 0;
    check(stubs(), "the driver finds no GPU");
    if (find_device("host", 0, stubs()).about != "OpenBLAS") failures += "host\n";
    gpu.gpu_count = 1;
    if (find_device("auto", 0, stubs()).about != "cuBLAS on GPU 0 (stub)") failures += "auto with a GPU\n";
    return failures;
  });
}

#ifdef HAS_TOOLKIT
/// Whether a caller that goes by `Own` calls a function that is `Toolkits` rightly: parameters of equal size
/// and kind, where handles are pointers and enums integers.
template <class Own, class Toolkits>
constexpr bool kSameParameter =
    sizeof(Own) == sizeof(Toolkits) && std::is_pointer_v<Own> == std::is_pointer_v<Toolkits> &&
    (std::is_integral_v<Own> || !std::is_enum_v<Toolkits>);
template <class Own, class Toolkits>
constexpr bool kSameCall = false;
template <class Result, class... Own, class ToolkitsResult, class... Toolkits>
requires(sizeof...(Own) ==
         sizeof...(Toolkits)) constexpr bool kSameCall<Result (*)(Own...), ToolkitsResult (*)(Toolkits...)> =
    kSameParameter<Result, ToolkitsResult> && (kSameParameter<Own, Toolkits> && ...);

static_assert(kSameCall<decltype(DriverFunctions::init), decltype(&cuInit)>);
static_assert(kSameCall<decltype(DriverFunctions::device_get_count), decltype(&cuDeviceGetCount)>);
static_assert(kSameCall<decltype(DriverFunctions::device_get), decltype(&cuDeviceGet)>);
static_assert(kSameCall<decltype(DriverFunctions::device_get_name), decltype(&cuDeviceGetName)>);
static_assert(
    kSameCall<decltype(DriverFunctions::primary_context_retain), decltype(&cuDevicePrimaryCtxRetain)>);
static_assert(
    kSameCall<decltype(DriverFunctions::primary_context_release), decltype(&cuDevicePrimaryCtxRelease)>);
static_assert(kSameCall<decltype(DriverFunctions::context_push_current), decltype(&cuCtxPushCurrent)>);
static_assert(kSameCall<decltype(DriverFunctions::context_pop_current), decltype(&cuCtxPopCurrent)>);
static_assert(kSameCall<decltype(DriverFunctions::memory_allocate), decltype(&cuMemAlloc)>);
static_assert(kSameCall<decltype(DriverFunctions::memory_free), decltype(&cuMemFree)>);
static_assert(kSameCall<decltype(DriverFunctions::get_error_string), decltype(&cuGetErrorString)>);
static_assert(kSameCall<decltype(StreamFunctions::host_allocate), decltype(&cuMemHostAlloc)>);
static_assert(kSameCall<decltype(StreamFunctions::host_free), decltype(&cuMemFreeHost)>);
static_assert(kSameCall<decltype(StreamFunctions::stream_create), decltype(&cuStreamCreate)>);
static_assert(kSameCall<decltype(StreamFunctions::stream_destroy), decltype(&cuStreamDestroy)>);
static_assert(kSameCall<decltype(StreamFunctions::event_create), decltype(&cuEventCreate)>);
static_assert(kSameCall<decltype(StreamFunctions::event_destroy), decltype(&cuEventDestroy)>);
static_assert(kSameCall<decltype(StreamFunctions::event_record), decltype(&cuEventRecord)>);
static_assert(kSameCall<decltype(StreamFunctions::event_synchronize), decltype(&cuEventSynchronize)>);
static_assert(kSameCall<decltype(CublasFunctions::create), decltype(&cublasCreate)>);
static_assert(kSameCall<decltype(CublasFunctions::destroy), decltype(&cublasDestroy)>);
static_assert(kSameCall<decltype(CublasFunctions::set_matrix), decltype(&cublasSetMatrix)>);
static_assert(kSameCall<decltype(CublasFunctions::sgemm), decltype(&cublasSgemm)>);
static_assert(kSameCall<decltype(CublasFunctions::get_matrix), decltype(&cublasGetMatrix)>);
static_assert(kSameCall<decltype(CublasFunctions::get_status_string), decltype(&cublasGetStatusString)>);
static_assert(CUBLAS_OP_N == 0 && CUBLAS_OP_T == 1);
static_assert(CU_MEMHOSTALLOC_PORTABLE == 1 && CU_STREAM_NON_BLOCKING == 1);
static_assert(CU_EVENT_BLOCKING_SYNC == 1 && CU_EVENT_DISABLE_TIMING == 2);
static_assert(CUDA_SUCCESS == 0 && CUBLAS_STATUS_SUCCESS == 0);
#endif

}  // namespace
}  // namespace tutti::trainer
