// See elastic.cc.
#pragma once

#include "trainer/options.h"

namespace tutti::trainer {

/// Starts options.ranks processes and trains with those that live. Returns the exit status.
int run_elastic(const Options& options);

}  // namespace tutti::trainer
