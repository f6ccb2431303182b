#include "gpt/run/shared_beginning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/version.h"
#include "gpt/run/same_run.h"

namespace gpt::run {
namespace {

// Keys that are each process's own.
constexpr std::array kOwnKeys = {"device", "threads", "output_dir", "distributed.processes"};

std::vector<std::string> differences(const Config& first, const Config& other) {
  std::vector<std::string> found;
  for (const config::Change& change : config::difference(first, other)) {
    if (std::find(kOwnKeys.begin(), kOwnKeys.end(), change.key) == kOwnKeys.end())
      found.push_back(fmt::format("{}: {} instead of {}", change.key, change.after, change.before));
  }
  return found;
}

// CBOR, because names of files need not be UTF-8, which JSON would require.
std::string packed(const nlohmann::json& said) {
  const std::vector<uint8_t> bytes = nlohmann::json::to_cbor(said);
  return {bytes.begin(), bytes.end()};
}

nlohmann::json unpacked(const std::string& bytes) { return nlohmann::json::from_cbor(bytes); }

// In what this process was started otherwise than the first one, whose command that is; empty: in nothing.
std::string difference_from(const nlohmann::json& first, const Config& asked, int64_t rank) {
  const std::string build = first.at("build");
  if (build != version_text())
    return fmt::format("rank {} runs another build ({}) than rank 0 ({}): install the same one", rank,
                       first_line(version_text()), first_line(build));
  Config config;
  config::read_yaml(first.at("config").get<std::string>(), "the configuration of rank 0", config);
  const std::vector<std::string> found = differences(config, asked);
  return found.empty() ? ""
                       : fmt::format(
                             "rank {} has another configuration than rank 0 ({}): start all processes with the "
                             "same command and files",
                             rank, fmt::join(found, ", "));
}

// The processes of a machine have the same files; the first of them prepares what is not prepared yet.
data::Corpus load_on_machine(const distributed::Group& group, Config& config, Beginning& begins) {
  const distributed::Ranks& ranks = group.ranks();
  const int64_t first = ranks.rank - ranks.local_rank;
  const auto load = [&] {
    return begins.initial ? load_corpus_for(*begins.initial, config) : load_run_corpus(config, begins.start);
  };
  const std::string name = fmt::format("prepared/{}", first);
  if (ranks.local_rank != 0 && first != 0) (void)group.from(first, name, "");
  data::Corpus corpus = load();
  if (ranks.local_rank == 0) (void)group.from(first, name, "");
  return corpus;
}

}  // namespace

// Whoever differs says so itself as well: on another machine nobody sees what the first one says.
void require_same_command(const distributed::Group& group, const config::CommandLine& command) {
  if (group.ranks().size == 1) return;
  const Config& asked = command.config;
  const nlohmann::json mine{{"build", version_text()}, {"config", config::dump(asked)}};
  const nlohmann::json first = unpacked(group.from(0, "command", packed(mine)));
  const std::string own = difference_from(first, asked, group.ranks().rank);
  std::string found = own;
  try {
    for (const std::string& other : group.from_all("difference", own))
      if (found.empty()) found = other;
  } catch (const Error&) {  // the first one has heard it and has gone
    if (own.empty()) throw;
  }
  if (found.empty()) return;
  throw Error(group.is_first() || !own.empty() ? ExitCode::config : ExitCode::peer, found);
}

void say_beginning(const distributed::Group& group, const Beginning& begins, const Setup& setup) {
  if (group.ranks().size == 1) return;
  nlohmann::json said{{"config", config::dump(setup.config)}, {"fingerprint", setup.corpus.fingerprint}};
  if (begins.start) {
    said["start"] = {{"path", begins.start->path},
                     {"is_last", begins.start->is_last},
                     {"started_by", begins.start->started_by},
                     {"step", begins.start->checkpoint.step}};
  }
  said["has_initial"] = begins.initial.has_value();
  said["decisions"] = nlohmann::json::array();
  for (const checkpoint::Decision& decision : begins.decisions)
    said["decisions"].push_back({{"step", decision.step}, {"what", decision.what}, {"value", decision.value}});
  (void)group.from(0, "beginning", packed(said));
}

SharedBeginning hear_beginning(const distributed::Group& group, const config::CommandLine& command,
                               const Folder& folder) {
  const Config& asked = command.config;
  const nlohmann::json said = unpacked(group.from(0, "beginning", ""));
  SharedBeginning shared;
  Config& config = shared.data.config;
  config::read_yaml(said.at("config").get<std::string>(), "the configuration of rank 0", config);
  config.device = asked.device, config.threads = asked.threads;
  config.output_dir = asked.output_dir;
  config.training.distillation.teacher = asked.training.distillation.teacher;
  if (said.contains("start")) {
    const nlohmann::json& start = said["start"];
    shared.begins.start = StartingPoint{.checkpoint = folder.load(start.at("path")),
                                        .path = start.at("path"),
                                        .is_last = start.at("is_last"),
                                        .started_by = start.at("started_by")};
    if (shared.begins.start->checkpoint.step != start.at("step").get<int64_t>()) {
      throw Error(
          ExitCode::checkpoint,
          fmt::format("{} is of step {} here and of step {} at rank 0: the processes must see the same output_dir",
                      shared.begins.start->path, shared.begins.start->checkpoint.step,
                      start.at("step").get<int64_t>()));
    }
  } else if (said.at("has_initial")) {
    shared.begins.initial = read_initial_weights(asked, command.origins);
  }
  for (const nlohmann::json& decision : said.at("decisions"))
    shared.begins.decisions.push_back({decision.at("step").get<int64_t>(), decision.at("what").get<std::string>(),
                                       decision.at("value").get<double>()});
  data::Corpus& corpus = shared.data.corpus = load_on_machine(group, config, shared.begins);
  if (corpus.fingerprint != said.at("fingerprint").get<std::string>()) {
    throw Error(ExitCode::data,
                fmt::format("{} has other data here than at rank 0: give every machine the same files", corpus.source));
  }
  return shared;
}

}  // namespace gpt::run
