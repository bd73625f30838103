// Scope of a test run: how much of a conformance product it covers, and what a sanitizer leaves of its time.
#pragma once

#include <cstdint>

namespace tutti::test {

/// True under `./dev test full` (the environment variable TUTTI_TEST_FULL is 1): run the whole product.
bool full_run();
/// True where an address or thread sanitizer is compiled in: everything is several times slower, and neither
/// resident memory nor mappings say anything about leaks (freed memory is kept for a while, shadows stay).
bool sanitized();
/// True where it is the thread sanitizer.
bool thread_sanitized();
/// How often a randomized test runs: `full` times in a full run, else `usual` times, of which a sanitized
/// build runs a quarter, but one at least.
uint32_t runs_of_scope(uint32_t usual, uint32_t full);

}  // namespace tutti::test
