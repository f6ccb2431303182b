#include "gpt/run/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"

namespace gpt::run {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> checkpoints_in(const std::string& folder) {
  return checkpoint::newest_first(folder, names_in(folder));
}

// The first of `candidates` that can be read. `reasons` says why those before it cannot.
std::optional<StartingPoint> first_readable(const std::vector<std::string>& candidates, std::string& reasons,
                                            const checkpoint::StateNeeds& needs = {}) {
  for (const std::string& path : candidates) {
    try {
      StartingPoint found{checkpoint::load_checkpoint(path, needs), path,
                          fs::path(path).filename() == checkpoint::kLastCheckpoint};
      found.started_by = found.checkpoint.started_by;
      return found;
    } catch (const Error& error) {
      if (error.code() != ExitCode::checkpoint) throw;
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return std::nullopt;
}

// The step of a line of metrics.jsonl; a line that a crash cut short, or that somebody else wrote, belongs to no step that is
// kept.
int64_t step_in(std::string_view line) {
  const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return std::numeric_limits<int64_t>::max();
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer()) return std::numeric_limits<int64_t>::max();
  return step->get<int64_t>();
}

// The step of a checkpoint that a run goes back from: none is read whose name says it, and what cannot be read lies beyond every
// step, as does ckpt.pt, which is the end of the run.
int64_t step_of(const std::string& folder, const std::string& name) {
  if (const auto step = checkpoint::step_in_name(name)) return *step;
  std::string unreadable;
  const auto found =
      name == checkpoint::kLastCheckpoint ? std::nullopt : first_readable({folder + "/" + name}, unreadable);
  return found ? found->checkpoint.step : std::numeric_limits<int64_t>::max();
}

// What stands beside the state of a run is no reason to lose it.
template <class Write>
void try_to(const Write& write, const std::string& otherwise) {
  try {
    write();
  } catch (const Error& error) {
    if (error.code() != ExitCode::disk) throw;
    log::warn(fmt::format("{}; training continues, and {}", error.what(), otherwise));
  }
}

// The first of FOLDER, FOLDER-2, FOLDER-3, ... that does not exist, which it creates.
std::string create_fresh_folder(const std::string& folder) {
  std::error_code error;
  if (fs::create_directory(folder, error)) return folder;
  std::string name = next_free_folder(folder);
  while (!error && !fs::create_directory(name, error)) name = next_free_folder(folder);
  if (error) throw Error(ExitCode::disk, fmt::format("cannot create the folder {}: {}", name, error.message()));
  return name;
}

std::string held_base(const std::string& folder) { return folder + "/." + kBaseFile; }

std::string restart_note(const std::string& folder) { return folder + "/.restart"; }

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const std::string& created(const std::string& path) {
  create_folders(path);
  return path;
}

}  // namespace

Folder::Folder(const std::string& path, checkpoint::StateNeeds needs)
    : Folder(path, std::move(needs), std::make_unique<FolderLock>(created(path), ExitCode::checkpoint, "output_dir")) {
  log::open_file(path_ + "/" + kRunLog);
}

Folder::Refuge Folder::refuge() const {
  if (const auto locked = lock_->locked()) {
    std::error_code ignored;
    const bool is_here = fs::weakly_canonical(path_, ignored) == locked->now;
    return {locked->path, locked->now, is_here ? "its .lock was removed" : "it is now " + locked->now};
  }
  const std::string fresh = create_fresh_folder(path_);
  return {fresh, fresh, "it was deleted, or another process has locked it"};
}

StartingPoint Folder::newest(std::string& reasons) const {
  if (std::optional<StartingPoint> found = first_readable(checkpoints_in(path_), reasons, needs_))
    return std::move(*found);
  throw Error(
      ExitCode::checkpoint,
      fmt::format(
          "{}; no readable checkpoint is left in {}: restore one, start anew with gpt-train --restart, which sets the old "
          "files aside, or choose another output_dir, such as {}",
          reasons, path_, next_free_folder(path_)));
}

InTheWay Folder::beyond(const StartingPoint& start) const {
  std::vector<std::string> ahead;
  for (const std::string& path : checkpoints_in(path_)) {
    if (path == start.path) break;
    ahead.push_back(fs::path(path).filename().string());
  }
  const int64_t step = start.checkpoint.step;
  // A ckpt.pt that is older than numbered ones was put there in order to go back to it.
  for (const std::string& name : names_in(path_)) {
    if (start.is_last && checkpoint::is_numbered(name) && checkpoint::step_in_name(name).value_or(0) > step)
      ahead.push_back(name);
  }
  return {std::move(ahead), fmt::format("What lies beyond step {} is now in ", step)};
}

FoundStart Folder::go_back(const std::string& path, const std::string& why) const {
  const std::string source = fs::path(path).filename().string();
  std::vector<std::pair<std::string, int64_t>> others;  // with their steps
  for (const std::string& name : names_in(path_)) {
    if (is_checkpoint_name(name) && name != source) others.emplace_back(name, step_of(path_, name));
  }
  StartingPoint start{load(path), path, /*is_last=*/false};
  start.started_by = start.checkpoint.started_by;
  std::vector<std::string> ahead;
  for (const auto& [name, step] : others) {
    if (step > start.checkpoint.step) ahead.push_back(name);
  }
  // The run has no best checkpoint then until it evaluates again.
  if (contains(ahead, checkpoint::kBestCheckpoint))
    start.checkpoint.best_val_loss = std::numeric_limits<double>::infinity();
  std::string told =
      fmt::format("{} {} (step {}); what lies beyond it is now in ", why, path, with_commas(start.checkpoint.step));
  return {std::move(start), {std::move(ahead), std::move(told)}};
}

FoundStart Folder::find_start(const std::string& resume_from, bool restart) const {
  const bool holds_run = holds_checkpoint(path_);
  const bool named = checkpoint::names_checkpoint(resume_from);
  const std::string path = named ? checkpoint::absolute_checkpoint(resume_from) : "";
  if (restart || !holds_run) {
    if (!named) return {std::nullopt, old_run()};
    StartingPoint start{load(path), path, /*is_last=*/false, /*started_by=*/path};
    start.checkpoint.best_val_loss = std::numeric_limits<double>::infinity();  // of a file that is not in this folder
    return {std::move(start), old_run()};
  }
  std::string reasons;
  std::optional<StartingPoint> own = newest(reasons);
  if (resume_from == "auto" || own->checkpoint.started_by == (named ? path : resume_from)) {
    if (!reasons.empty())
      log::warn(fmt::format("{}; continuing from {} (step {})", reasons, own->path, own->checkpoint.step));
    InTheWay in_the_way = beyond(*own);
    own->continues = true;
    return {std::move(own), std::move(in_the_way)};
  }
  own.reset();  // its tensors are large
  std::error_code ignored;
  if (named && fs::equivalent(fs::path(path).parent_path(), path_, ignored)) {
    FoundStart found = go_back(path, "Going back to");
    found.start->started_by = path;
    return found;
  }
  if (named && !exists(path))
    throw Error(ExitCode::checkpoint, fmt::format("training.resume_from: {} does not exist", resume_from));
  throw Error(
      ExitCode::checkpoint,
      fmt::format(
          "{} already holds a run, which was not started with training.resume_from: {}; gpt-train --restart sets it aside and "
          "starts anew, training.resume_from: auto continues it, and output_dir: {} is free for {}",
          path_, resume_from, next_free_folder(path_),
          named ? "a run that continues that one, or, with training.init_from instead, for a new one with its weights"
                : "a new run"));
}

InTheWay Folder::old_run() const {
  const bool holds_run = holds_checkpoint(path_);
  if (!holds_run && !exists(metrics_path())) return {};
  std::vector<std::string> old = names_in(path_);
  std::erase_if(old, [](const std::string& name) { return !belongs_to_run(name); });
  if (holds_run) return {std::move(old), "Starting anew: the old run is now in "};
  return {std::move(old),
          path_ + " holds metrics but no checkpoint: the run begins anew, and what was there is now in ",
          /*is_warning=*/true};
}

void Folder::set_aside(const InTheWay& in_the_way) const {
  const auto& [names, told, is_warning] = in_the_way;
  std::error_code ignored;
  fs::remove(restart_note(path_), ignored);
  if (names.empty()) return;
  int number = 1;
  while (exists(fmt::format("{}/{}/{}", path_, kSetAside, number))) ++number;
  const std::string target = fmt::format("{}/{}/{}", path_, kSetAside, number);
  create_folders(target);
  for (const std::string& name : names) {
    std::error_code error;
    fs::rename(path_ + "/" + name, target + "/" + name, error);
    if (error)
      throw Error(ExitCode::disk, fmt::format("cannot move {}/{} to {}: {}", path_, name, target, error.message()));
  }
  is_warning ? log::warn(told + target) : log::info(told + target);
}

void Folder::hold_base(const std::string& path) const {
  std::error_code ignored;
  if (!fs::equivalent(path, path_ + "/" + kBaseFile, ignored)) (void)link_file(path, held_base(path_));
}

void Folder::keep_held_base() const {
  std::error_code ignored;
  fs::rename(held_base(path_), path_ + "/" + kBaseFile, ignored);
}

bool Folder::is_still_to_restart(int64_t starts_before) const {
  const std::string note = restart_note(path_);
  if (starts_before > 0) return exists(note);
  AtomicFile file(note);
  file.commit();
  return true;
}

std::optional<StartingPoint> peek_run(const std::string& folder) {
  std::string reasons;
  return first_readable(checkpoints_in(folder), reasons);
}

bool holds_checkpoint(const std::string& folder) { return !checkpoints_in(folder).empty(); }

std::string next_free_folder(const std::string& folder) {
  int number = 2;
  while (exists(fmt::format("{}-{}", folder, number))) ++number;
  return fmt::format("{}-{}", folder, number);
}

void Folder::write_config(const std::string& yaml, const std::string& config_path) const {
  const std::string path = path_ + "/" + kEffectiveConfig;
  std::error_code ignored;
  if (fs::equivalent(path, config_path, ignored)) return;
  try_to(
      [&] {
        AtomicFile file(path);
        file.write(yaml);
        file.commit();
      },
      fmt::format("{} does not show its configuration", path));
}

void Folder::rewind_metrics(int64_t step) const {
  try_to([&] { move_metrics_beyond(step); },
         fmt::format("{} may still have lines of steps after {}", metrics_path(), with_commas(step)));
}

void Folder::move_metrics_beyond(int64_t step) const {
  if (!exists(metrics_path())) return;
  const MappedFile whole(metrics_path(), ExitCode::disk);  // a long run's has hundreds of megabytes
  std::string_view rest(reinterpret_cast<const char*>(whole.bytes().data()), whole.bytes().size());
  std::vector<std::string_view> kept;  // stretches of lines
  std::string dropped;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const bool is_next = !kept.empty() && kept.back().data() + kept.back().size() == rest.data();
    const size_t size = std::min(line.size() + 1, rest.size());
    if (step_in(line) > step) {
      dropped.append(line).append("\n");
    } else if (is_next) {
      kept.back() = {kept.back().data(), kept.back().size() + size};
    } else {
      kept.push_back(rest.substr(0, size));
    }
    rest.remove_prefix(size);
  }
  if (dropped.empty()) return;
  AppendFile(path_ + "/metrics.old.jsonl").line(dropped.substr(0, dropped.size() - 1));
  AtomicFile file(metrics_path());
  for (const std::string_view lines : kept) file.write(lines);
  file.commit();
}

std::vector<std::string> Folder::numbered() const {
  std::error_code ignored;  // what cannot be listed or removed now is tried again with the next one
  std::vector<std::string> names = names_in(path_, ignored);
  std::erase_if(names, [](const std::string& name) { return !checkpoint::is_numbered(name); });
  return names;
}

void Folder::remove_old_numbered(int64_t keep_last) const {
  const std::vector<std::string> names = numbered();
  std::error_code ignored;
  for (size_t i = 0; i + keep_last < names.size(); ++i) fs::remove(path_ + "/" + names[i], ignored);
}

void Folder::remove_but(bool (*is_of_kind)(const std::string&), std::optional<int64_t> kept_step) const {
  std::error_code ignored;  // as above
  for (const std::string& name : names_in(path_, ignored)) {
    if (is_of_kind(name) && (!kept_step || checkpoint::step_in_name(name) != kept_step))
      fs::remove(path_ + "/" + name, ignored);
  }
}

void Folder::remove_rollbacks_but(std::optional<int64_t> kept_step) const {
  remove_but(checkpoint::is_for_rollback, kept_step);
}
void Folder::remove_stable_but(int64_t kept_step) const { remove_but(checkpoint::is_stable, kept_step); }

void Folder::require_space(uint64_t bytes, const TrainingConfig& training, const InTheWay& in_the_way) const {
  const CadenceConfig& cadence = training.cadence;
  std::vector<std::string> names = names_in(path_);
  std::erase_if(names, [&in_the_way](const std::string& name) { return contains(in_the_way.names, name); });
  const auto missing = [&names](int64_t kept, bool (*is_of_kind)(const std::string&)) {
    return std::max<int64_t>(0, kept - std::count_if(names.begin(), names.end(), is_of_kind));
  };
  // One more than is kept: a checkpoint is written beside the one it replaces.
  const uint64_t files = 1 + !contains(names, checkpoint::kLastCheckpoint) +
                         !contains(names, checkpoint::kBestCheckpoint) +
                         missing(cadence.keep_last, checkpoint::is_numbered) +
                         missing(cadence.divergence.kept_checkpoints(), checkpoint::is_for_rollback) +
                         missing(training.schedule.kept_checkpoints(), checkpoint::is_stable);
  const uint64_t needed = files * bytes, available = free_disk_space(path_);
  if (available >= needed) return;
  throw Error(ExitCode::disk,
              fmt::format("{}: the checkpoints of this run need {}, but only {} is free: free some space, {}"
                          "or choose another output_dir",
                          path_, format_bytes(static_cast<double>(needed)),
                          format_bytes(static_cast<double>(available)),
                          cadence.keep_last > 0 ? "lower training.keep_last, " : ""));
}

}  // namespace gpt::run
