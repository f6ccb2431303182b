#include "gpt/device/cpu_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>

#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/processors.h"
#include "gpt/core/surroundings.h"

namespace gpt::device {
namespace {

// LibTorch's choice knows no quota.
int64_t default_threads() {
  const int64_t chosen = at::get_num_threads();
  const bool is_asked_for = std::getenv("OMP_NUM_THREADS") || std::getenv("MKL_NUM_THREADS");
  return is_asked_for ? chosen : std::min(chosen, usable_cores());
}

// Before the threads begin that inherit it. A launcher that has divided the machine itself left a mask within one node.
void keep_to_nodes(int64_t rank, int64_t processes) {
  const std::vector<Processor>& all = processors_to_run_on();
  const std::vector<Processor> own = nodes_of_process(all, rank, processes);
  if (own.size() < all.size() && run_on(own) && rank == 0)
    log::info(fmt::format("Each of {} processes keeps to its part of the {} NUMA nodes", processes, count_nodes(all)));
}

int64_t threads_of_a_team() {
  int64_t threads = 1;
#pragma omp parallel
  if (omp_get_thread_num() == 0) threads = omp_get_num_threads();
  return threads;
}

// What the environment says that makes a team smaller: " (OMP_THREAD_LIMIT=1)".
std::string limits_in_environment() {
  std::string limits;
  for (const char* name :
       {"OMP_THREAD_LIMIT", "OMP_MAX_ACTIVE_LEVELS", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS", "KMP_MAX_THREADS"}) {
    if (const char* value = std::getenv(name))
      limits += fmt::format("{}{}={}", limits.empty() ? "" : ", ", name, value);
  }
  return limits.empty() ? "" : fmt::format(" ({})", limits);
}

// It tells how long its threads spin; LibTorch's own, GNU's, has no such function.
bool is_llvm_openmp() { return dlsym(RTLD_DEFAULT, "kmp_get_blocktime") != nullptr; }

void announce_other_openmp() {
  if (is_llvm_openmp()) return;
  Dl_info library{};
  const bool is_known = dladdr(reinterpret_cast<void*>(&omp_get_num_threads), &library) != 0;
  log::info(fmt::format("OpenMP is {} instead of LLVM's in lib/gpt-train beside bin: small models are slower on a CPU",
                        is_known ? library.dli_fname : "LibTorch's"));
}

}  // namespace

void use_cpu_threads(int64_t count, int64_t processes, std::optional<int64_t> local_rank) {
  static std::once_flag is_announced;
  std::call_once(is_announced, [] {
    surroundings::require_random_numbers();
    if (is_llvm_openmp()) surroundings::require_shared_memory();
    announce_other_openmp();
  });
  omp_set_dynamic(0);  // which starts OpenMP
  surroundings::remove_openmp_file();
  if (local_rank) keep_to_nodes(*local_rank, processes);
  const int64_t automatic = processes == 1 ? default_threads() : std::max<int64_t>(1, usable_cores() / processes);
  const int64_t asked = count > 0 ? count : automatic;
  surroundings::require_threads(asked - 1);
  at::set_num_threads(static_cast<int>(asked));
  const int64_t given = threads_of_a_team();
  if (given == asked) return;
  at::set_num_threads(static_cast<int>(given));
  log::warn(fmt::format("OpenMP gives {} instead of {}{}", plural(given, "thread"), asked, limits_in_environment()));
}

void use_one_cpu_thread() {
  (void)at::get_num_threads();  // LibTorch sets its own number when a thread asks for it first
  omp_set_num_threads(1);
}

}  // namespace gpt::device
