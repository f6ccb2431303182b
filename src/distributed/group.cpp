#include "gpt/distributed/group.h"

#include <fmt/format.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "c10d.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/process.h"
#include "gpt/distributed/watch.h"
#include "meeting.h"
#include "sockets.h"

namespace gpt::distributed {
namespace {

// Where torchrun looks for the cause of a failure.
void write_error_file(const std::string& why) {
  const char* const path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!path) return;
  const nlohmann::json extra{{"py_callstack", ""}, {"timestamp", std::to_string(std::time(nullptr))}};
  const nlohmann::json error{{"message", {{"message", why}, {"extraInfo", extra}}}};
  std::ofstream(path) << error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

struct Group::Impl {
  const Ranks ranks;
  StorePointer store = {};
  std::unique_ptr<Watch> watch = {};
  at::Device device = at::kCPU;
  Mesh mesh = no_mesh();

  // Those of the communicators, which may wait for a process that will never answer: they are never destroyed.
  void give_up_threads() const { (void)new Mesh(mesh); }

  void say(const std::string& name, const std::string& text) const {
    store->set(name, std::vector<uint8_t>(text.begin(), text.end()));
  }

  // What another process says; as long as it is there it may take its time.
  std::string hear(const std::string& name) const {
    try {
      // Who has said it may have ended since.
      for (; !store->check({name}); std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
        if (const auto lost = watch->lost()) throw Error(ExitCode::peer, *lost);
        if (process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted");
      }
      const std::vector<uint8_t> text = store->get(name);
      return {text.begin(), text.end()};
    } catch (const Error&) { throw; } catch (const std::exception& error) {
      throw Error(ExitCode::peer, watch->await_lost());  // the store has gone
    }
  }

  // Who left before could not be told from one who never came.
  void await_all(const std::string& what) const {
    const auto key = [&what](int64_t rank) { return fmt::format("{}/{}", what, rank); };
    say(key(ranks.rank), "");
    for (int64_t rank = 0; rank < ranks.size; ++rank) (void)hear(key(rank));
  }

  // From here on the others notice where one is lost.
  static void tell_launcher(int pipe) {
    constexpr char kMet = 1;
    (void)!write(pipe, &kMet, 1);  // it may have gone
    close(pipe);
  }

  // Those of the communicators between some of the processes: so many that are `step` apart, the first of which is `first`.
  std::shared_ptr<Communicator> connect_some(const std::string& name, int64_t first, int64_t step,
                                             int64_t count) const {
    if (count == 1) return alone();
    const auto store_of = c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", name, first), store);
    return connect({.rank = (ranks.rank - first) / step, .size = count}, store_of, device, own_addresses(ranks),
                   *watch);
  }

  void arrange(int64_t tensor, int64_t stages) {
    constexpr std::chrono::seconds kToConnect(60);
    const auto before = store->getTimeout();
    store->setTimeout(kToConnect);
    const int64_t of_stage = ranks.size / stages, place = ranks.rank % of_stage, column = place % tensor;
    mesh.tensor = connect_some("tensor", ranks.rank - column, 1, tensor);
    mesh.data = connect_some("data", ranks.rank - place + column, tensor, of_stage / tensor);
    if (stages > 1) connect_stages(place, of_stage, stages);
    await_all("arranged");
    store->setTimeout(before);
  }

  // `first`: the process of the first stage; those of the next ones are `step` apart.
  void connect_stages(int64_t first, int64_t step, int64_t stages) {
    constexpr int64_t kBoth = 2;
    Pipeline& pipeline = mesh.pipeline;
    pipeline.stages = connect_some("stages", first, step, stages);
    const auto boundary_behind = [&](int64_t rank) {
      return Boundary{connect_some("forward", rank, step, kBoth), connect_some("backward", rank, step, kBoth)};
    };
    if (!pipeline.is_first()) pipeline.before = boundary_behind(ranks.rank - step);
    if (!pipeline.is_last()) pipeline.after = boundary_behind(ranks.rank);
    if (pipeline.is_first() || pipeline.is_last())
      pipeline.ends = connect_some("ends", first, step * (stages - 1), kBoth);
  }

  void come_together(const std::string& folder, std::chrono::duration<double> timeout) {
    Meeting meeting = meet(ranks, folder, timeout);
    store = std::move(meeting.store), watch = std::move(meeting.watch);
    mesh.all = mesh.data = connect(ranks, store, device, own_addresses(ranks), *watch);
    await_all("connected");
    if (ranks.met) tell_launcher(*ranks.met);
    constexpr std::chrono::seconds kToAnswer(5);
    store->setTimeout(kToAnswer);  // a store that does not answer from here on has gone with the first process
  }
};

Group::Group(const Ranks& ranks, at::Device device, const std::string& folder, double timeout)
    : impl_(new Impl{.ranks = ranks, .device = device}) {
  if (ranks.size == 1) return;
  try {
    impl_->come_together(folder, std::chrono::duration<double>(timeout));
  } catch (const std::exception& error) {
    if (impl_->watch) impl_->watch->leave(first_line(error.what()));
    throw;
  }
}

// The others may still ask what the first process has said, which holds the store, and that one may still be saving.
Group::~Group() {
  if (impl_->watch) impl_->watch->await_ends();
  if (impl_->watch && impl_->watch->lost()) impl_->give_up_threads();
}

bool Group::has_lost_first() const {
  const auto lost = impl_->watch ? impl_->watch->lost() : std::nullopt;
  return lost && lost->starts_with("rank 0 ") && lost->find(kHasEnded) == std::string::npos;
}

const Ranks& Group::ranks() const { return impl_->ranks; }
const std::shared_ptr<Communicator>& Group::communicator() const { return impl_->mesh.all; }
const Mesh& Group::mesh() const { return impl_->mesh; }

void Group::arrange(int64_t tensor, int64_t stages) {
  TORCH_CHECK(ranks().size % (tensor * stages) == 0, "Group: ", tensor, " times ", stages, " must divide ",
              ranks().size);
  if (tensor * stages > 1) impl_->arrange(tensor, stages);
}

std::string Group::from(int64_t rank, const std::string& name, const std::string& text) const {
  if (ranks().size == 1) return text;
  if (ranks().rank != rank) return impl_->hear(name);
  impl_->say(name, text);
  return text;
}

std::vector<std::string> Group::from_all(const std::string& name, const std::string& text) const {
  if (ranks().size == 1) return {text};
  const auto key = [&](int64_t rank) { return fmt::format("{}/{}", name, rank); };
  impl_->say(key(ranks().rank), text);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < ranks().size; ++rank) texts.push_back(impl_->hear(key(rank)));
  return texts;
}

void Group::leave(const std::string& why) const {
  if (ranks().size == 1) return;
  write_error_file(why);
  impl_->watch->leave(why);
  impl_->give_up_threads();
}

void Group::forward_warning(const std::string& warning) const {
  if (impl_->watch) impl_->watch->forward_warning(warning);
}

}  // namespace gpt::distributed
