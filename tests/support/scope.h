// How much of a conformance product a test run covers: a pairwise-covering sample, or all of it.
#pragma once

namespace tutti::test {

/// True under `./dev test full` (the environment variable TUTTI_TEST_FULL is 1): run the whole product.
bool full_run();

}  // namespace tutti::test
