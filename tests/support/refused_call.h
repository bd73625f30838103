// A process to which the kernel refuses a system call, as a sandbox does.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tutti::test {

/// From now on the system call of this number fails with EPERM in this thread and in threads that it starts.
/// With `argument`, only where the third argument has that value. False if the kernel has no such filters.
inline bool refuse_call(long number, int64_t argument = -1) {
  constexpr auto kThirdArgument = static_cast<uint32_t>(offsetof(seccomp_data, args) + 2 * sizeof(uint64_t));
  const auto wanted = static_cast<uint32_t>(argument);
  const uint8_t if_equal = 0;
  const uint8_t to_argument = argument < 0 ? 2 : 0;
  std::array<sock_filter, 6> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), to_argument, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kThirdArgument),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wanted, if_equal, 1),
      BPF_STMT(BPF_RET | BPF_K, static_cast<uint32_t>(SECCOMP_RET_ERRNO | EPERM)),
      BPF_STMT(BPF_RET | BPF_K, static_cast<uint32_t>(SECCOMP_RET_ALLOW)),
  }};
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace tutti::test
