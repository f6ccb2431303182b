// Makes system calls of this process fail, for a run_child() body: what a disk or a file system that lacks them would do.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "core/child_process.h"
#include "gpt/core/error.h"

namespace gpt {

struct FailingCall {
  int number;  // SYS_fsync
  int error;   // EIO
};

// Makes them fail from here on, in this process and its children. False where the machine does not allow it.
inline bool fail_calls(const std::vector<FailingCall>& calls) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const FailingCall& call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call.number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(call.error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// The status of a child whose `calls` fail: the code of the gpt::Error that `body` throws, 0 without one, or kNotPermitted.
inline ChildResult run_with_failing_calls(const std::vector<FailingCall>& calls, const std::function<void()>& body) {
  return run_child([&] {
    if (!fail_calls(calls)) return kNotPermitted;
    try {
      body();
    } catch (const Error& error) { return static_cast<int>(error.code()); }
    return 0;
  });
}

}  // namespace gpt
