#include "meeting.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/sockets.h"
#include "gpt/core/surroundings.h"

namespace gpt::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// How long those that come first wait for the others, which a queue may start later.
constexpr std::chrono::minutes kPatience(5);

// One that takes longer has gone.
constexpr std::chrono::seconds kToAnswer(60);

constexpr std::chrono::milliseconds kTryAgain(50);

// c10d warns of each attempt to connect, with a backtrace. What follows from it is an error of ours.
void silence_library() {
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

StorePointer connect_store(const std::string& address, uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = kToAnswer;
  return unless_stopped([=]() -> StorePointer { return c10::make_intrusive<c10d::TCPStore>(address, options); });
}

// `listener`: a bound socket at that port, which the store takes over.
StorePointer serve_store(const std::string& address, uint16_t port, std::optional<int> listener) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = kToAnswer;
  options.masterListenFd = listener;
  return unless_stopped([=]() -> StorePointer { return c10::make_intrusive<c10d::TCPStore>(address, options); });
}

// Until `attempt` gives something. What it throws is forgotten meanwhile, but for what no waiting mends.
template <typename Attempt>
auto keep_trying(const Ranks& ranks, const std::string& where, const Attempt& attempt) {
  std::string why = "it is not there";
  for (const Clock::time_point begin = Clock::now(); Clock::now() - begin < kPatience;
       std::this_thread::sleep_for(kTryAgain)) {
    leave_if_stopped();
    try {
      if (auto found = attempt()) return found;
    } catch (const Error& error) {
      if (error.code() != ExitCode::peer) throw;
      why = error.what();
    }
  }
  throw Error(ExitCode::peer, fmt::format("rank {} has not found the first process at {} within {:.0f} s: {}",
                                          ranks.rank, where, std::chrono::duration<double>(kPatience).count(), why));
}

// What the first process has said under this name.
std::optional<std::string> said_in(const StorePointer& store, const std::string& name) {
  if (!store->check({name})) return std::nullopt;
  const std::vector<uint8_t> text = store->get(name);
  return std::string(text.begin(), text.end());
}

// A launcher's store may still hold what was said before a restart.
StorePointer own_part(const Ranks& ranks, const StorePointer& store) {
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("gpt-train/{}", ranks.restart), store);
}

// A launcher that serves the store, or has bound its port, is there before any process. Otherwise the first one may come later.
void await_listener(const Ranks& ranks) {
  if (ranks.is_served || ranks.launcher == "gpt-train" || ranks.is_first()) return;
  keep_trying(ranks, fmt::format("{}:{}", ranks.address, ranks.port), [&] {
    const int fd = connect_to(ranks.address, ranks.port);
    close(fd);
    return true;
  });
}

Meeting meet_at_address(const Ranks& ranks, std::chrono::duration<double> timeout) {
  constexpr const char* kWatch = "watch";
  await_listener(ranks);
  const bool serves = ranks.is_first() && !ranks.is_served;
  const StorePointer store = own_part(ranks, serves ? serve_store(ranks.address, ranks.port, ranks.listener)
                                                    : connect_store(ranks.address, ranks.port));
  if (ranks.is_first()) {
    auto watch = std::make_unique<Watch>(ranks, timeout);
    const std::string where = watch->where();
    store->set(kWatch, std::vector<uint8_t>(where.begin(), where.end()));
    watch->await_all(kPatience);
    return {store, std::move(watch)};
  }
  const auto where =
      keep_trying(ranks, fmt::format("{}:{}", ranks.address, ranks.port), [&] { return said_in(store, kWatch); });
  return {store, std::make_unique<Watch>(ranks, timeout, *where)};
}

// The file in which the first process says where it is, while it waits for the others: "PORT WHERE", the port of its store and where its
// watch is.
class MeetingFile {
 public:
  MeetingFile(std::string path, const std::string& text) : path_(std::move(path)), text_(text) {
    create_folders(std::filesystem::path(path_).parent_path().string());
    AtomicFile file(path_);
    file.write(text_);
    file.commit(Durability::unsynced);
  }

  // Another run in the same folder may have written its own.
  ~MeetingFile() {
    std::error_code ignored;
    if (read(path_) == text_) std::filesystem::remove(path_, ignored);
  }
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  // Nothing: it is not there.
  static std::optional<std::string> read(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return std::nullopt;
    try {
      return read_file(path, ExitCode::peer);
    } catch (const Error&) { return std::nullopt; }
  }

 private:
  const std::string path_, text_;
};

Meeting meet_in_file(const Ranks& ranks, const std::string& folder, std::chrono::duration<double> timeout) {
  const std::string path = fmt::format("{}/.ranks-{}-{}", folder, ranks.id.empty() ? "0" : ranks.id, ranks.restart);
  if (ranks.is_first()) {
    const std::string address = own_addresses(ranks).front();
    const ListeningSocket listener = listen_at(address);
    StorePointer store = serve_store(address, listener.port, listener.fd);
    auto watch = std::make_unique<Watch>(ranks, timeout);
    const MeetingFile file(path, fmt::format("{} {}", listener.port, watch->where()));
    watch->await_all(kPatience);
    return {own_part(ranks, store), std::move(watch)};
  }
  return std::move(*keep_trying(ranks, path, [&]() -> std::optional<Meeting> {
    const auto text = MeetingFile::read(path);
    if (!text) return std::nullopt;
    std::istringstream words(*text);
    uint16_t port = 0;
    std::string address, rest;
    if (!(words >> port >> address) || !std::getline(words, rest)) throw Error(ExitCode::peer, "it is not complete");
    auto watch = std::make_unique<Watch>(ranks, timeout, address + rest);
    try {
      return Meeting{own_part(ranks, connect_store(address, port)), std::move(watch)};
    } catch (const std::exception& error) {
      watch->leave(first_line(error.what()));
      throw;
    }
  }));
}

}  // namespace

Meeting meet(const Ranks& ranks, const std::string& folder, std::chrono::duration<double> timeout) {
  silence_library();
  require_connections(ranks);
  try {
    return ranks.address.empty() ? meet_in_file(ranks, folder, timeout) : meet_at_address(ranks, timeout);
  } catch (const Error&) { throw; } catch (const std::exception& error) {
    if (surroundings::is_lack_of_threads(error)) throw;
    throw Error(ExitCode::peer,
                fmt::format("rank {} cannot meet the others at {}: {}", ranks.rank,
                            ranks.address.empty() ? folder : fmt::format("{}:{}", ranks.address, ranks.port),
                            first_line(error.what())));
  }
}

}  // namespace gpt::distributed
