// Exit statuses of the tools.
#pragma once

namespace tutti::perf {

enum ExitStatus : int {
  kExitOk = 0,
  kExitWrong = 1,    ///< a wrong element, or bandwidth below NCCL_TESTS_MIN_BW
  kExitUsage = 2,    ///< a mistake on the command line or in the environment
  kExitFailure = 3,  ///< a call failed, a process died, or time ran out
};

}  // namespace tutti::perf
