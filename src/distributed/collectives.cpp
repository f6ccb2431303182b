#include "collectives.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "gpt/core/error.h"

namespace gpt::distributed {
namespace {

// Between two looks at what the watch knows, while a collective is waited for.
constexpr std::chrono::milliseconds kLook(250);
// Between two questions whether a GPU is done.
constexpr std::chrono::microseconds kGlance(100);

}  // namespace

Collectives::Collectives(Backend host, Backend device, const Watch& watch)
    : host_(std::move(host)), device_(std::move(device)), watch_(watch) {}

void Collectives::wait(const Work& work, const at::Tensor& x) const {
  if (!x.is_cpu())
    return work->synchronize();  // wait() with a limit would block the host, and end NCCL when the limit is reached
  while (true) {
    const bool had_ended = work->isCompleted();
    try {
      work->wait(kLook);
      return;
    } catch (const std::exception& error) {
      if (had_ended) fail(error);  // otherwise the limit may be all that was reached
    }
    require_all();
  }
}

void Collectives::wait_on_host(const Work& work, const at::Tensor& x) const {
  wait(work, x);
  wait_until([&work] { return work->isCompleted(); });
}

void Collectives::wait_until(const std::function<bool()>& is_so) const {
  for (; !is_so(); std::this_thread::sleep_for(kGlance)) require_all();
}

void Collectives::require_all() const {
  if (const auto lost = watch_.lost()) throw Error(ExitCode::peer, *lost);
}

// The connection breaks when another process is killed; that one has a name only once the watch knows.
void Collectives::fail(const std::exception& error) const {
  if (dynamic_cast<const Error*>(&error)) throw;
  const std::string lost = watch_.await_lost();
  throw Error(ExitCode::peer, watch_.lost() ? lost : fmt::format("{}: {}", lost, first_line(error.what())));
}

}  // namespace gpt::distributed
