// The choice among SIMD targets.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "reduce/targets.h"
// After the targets that are left out.
#include "hwy/targets.h"

namespace tutti::reduce {
namespace {

// Goal: the kernels of every machine are the ones that Highway's library would choose.
// Method: asks that library, where the machine has it, and the function that this program links.
// Expectation: the same targets, among those that are compiled.
TEST(HighwayTargetsTest, TheTargetsAreThoseThatHighwaysLibraryFinds) {
  void* library = dlopen("libhwy.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "no shared library of Highway";
  using SupportedTargets = int64_t (*)();
  const auto find = reinterpret_cast<SupportedTargets>(dlsym(library, "_ZN3hwy16SupportedTargetsEv"));
  ASSERT_NE(find, nullptr) << dlerror();
  EXPECT_EQ(hwy::SupportedTargets() & HWY_TARGETS, find() & HWY_TARGETS);
  EXPECT_NE(hwy::SupportedTargets() & HWY_TARGETS, 0);
  dlclose(library);
}

}  // namespace
}  // namespace tutti::reduce
