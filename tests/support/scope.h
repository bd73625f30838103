// Scope of a test run: how much of a conformance product it covers, and how much under a sanitizer.
#pragma once

#include <cstdint>

namespace tutti::test {

/// True under `./dev test full` (TUTTI_TEST_FULL is 1): run the whole product.
bool full_run();
/// True under an address or thread sanitizer. Everything is several times slower. Resident memory and
/// mappings then tell nothing about leaks, because the sanitizer keeps freed memory for a while and its
/// shadow memory stays.
bool sanitized();
/// True under the thread sanitizer.
bool thread_sanitized();
/// How often a randomized test runs: `full` times in a full run, else `usual` times. A sanitized build runs a
/// quarter of `usual`, but at least one.
uint32_t runs_of_scope(uint32_t usual, uint32_t full);

}  // namespace tutti::test
