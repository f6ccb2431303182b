#include "gpt/board/board.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "gpt/board/prometheus.h"

namespace gpt::board {
namespace {

using nlohmann::ordered_json;

constexpr std::chrono::milliseconds kBetweenChecks(1000), kBetweenLooks(20);

std::string text_of(const ordered_json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

template <class Number>
ordered_json or_null(const std::optional<Number>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json shown_number(const std::optional<double>& value) {
  return value ? report::page_number(*value) : ordered_json();
}

ordered_json row_json(const RunRow& row) {
  return {{"name", row.name},
          {"state", row.state},
          {"activity", row.activity},
          {"step", or_null(row.step)},
          {"total_steps", row.total_steps},
          {"loss", shown_number(row.loss)},
          {"best", shown_number(row.best)},
          {"tokens_per_second", shown_number(row.tokens_per_second)},
          {"remaining_seconds",
           row.remaining_seconds > 0 ? report::page_number(row.remaining_seconds) : ordered_json()},
          {"silent_seconds", report::page_number(row.silent_seconds)}};
}

}  // namespace

Board::Board(std::vector<std::string> folders, bool controls) : folders_(std::move(folders)), controls_(controls) {
  for (const std::string& folder : folders_) watch_.add(folder);
  find_runs();
  follower_ = std::thread(&Board::follow, this);
}

Board::~Board() {
  stop();
  follower_.join();
}

void Board::stop() {
  {
    const std::lock_guard lock(mutex_);
    look({}, /*at_all=*/true);
    ++version_;
    is_stopping_ = true;
  }
  changed_.notify_all();
  watch_.wake();
}

void Board::follow() {
  auto checked = Clock::now();
  for (;;) {
    const std::set<std::string> told = watch_.wait(kBetweenChecks);
    const bool is_time = Clock::now() - checked >= kBetweenChecks;
    if (is_time) checked = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      if (look({told.begin(), told.end()}, is_time)) ++version_;
    }
    changed_.notify_all();
    std::this_thread::sleep_for(kBetweenLooks);  // what is written meanwhile is looked at together
  }
}

// Whether there is anything new. Once a second all are looked at, for the system does not tell of everything.
bool Board::look(const std::vector<std::string>& changed, bool at_all) {
  bool is_new = false;
  const auto is_named = [this](const std::string& folder) {
    return std::find(folders_.begin(), folders_.end(), folder) != folders_.end();
  };
  if (at_all || std::any_of(changed.begin(), changed.end(), is_named)) is_new = find_runs();
  const auto now = Clock::now();
  for (const auto& [folder, run] : runs_) {
    const bool may_be_new = at_all || std::find(changed.begin(), changed.end(), folder) != changed.end();
    if (may_be_new && run->look()) is_new = true;
    if (at_all && run->check(now)) is_new = true;
  }
  return is_new;
}

// A run stays until its folder is gone: one that begins anew has none of its files for a moment.
bool Board::find_runs() {
  bool is_new = false;
  std::error_code ignored;
  for (auto run = runs_.begin(); run != runs_.end();) {
    const bool is_there = std::filesystem::is_directory(run->first, ignored);
    if (!is_there) watch_.remove(run->first), is_new = true;
    run = is_there ? std::next(run) : runs_.erase(run);
  }
  for (const std::string& folder : run_folders(folders_)) {
    if (runs_.contains(folder)) continue;
    watch_.add(folder);
    runs_.emplace(folder, std::make_unique<FollowedRun>(folder, names_.name_of(folder)));
    is_new = true;
  }
  return is_new;
}

FollowedRun* Board::find(const std::string& name) {
  for (const auto& [folder, run] : runs_)
    if (run->name() == name) return run.get();
  return nullptr;
}

std::optional<std::string> Board::only_run() {
  const std::lock_guard lock(mutex_);
  if (folders_.size() != 1 || runs_.size() != 1 || runs_.begin()->first != folders_[0]) return std::nullopt;
  return runs_.begin()->second->name();
}

bool Board::has(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return find(name) != nullptr;
}

std::optional<std::string> Board::folder_of(const std::string& name) {
  const std::lock_guard lock(mutex_);
  FollowedRun* const run = find(name);
  return run ? std::optional(run->folder()) : std::nullopt;
}

std::string Board::news_of(const std::string& name, ToldRun& told) {
  const std::lock_guard lock(mutex_);
  FollowedRun* const run = find(name);
  if (!run) return "";
  run->want(Clock::now());
  const FollowedRun::Versions now = run->versions();
  if (now.news == told.versions.news) return "";
  ordered_json message = ordered_json::object();
  const bool is_whole = now.beginnings != told.versions.beginnings;
  if (is_whole) told.curves = report::SentCurves(), message["is_whole"] = true;
  report::RunPage page = run->page();
  if (page.live) page.live->may_be_told = page.live->may_be_told && controls_;
  const ordered_json head = report::page_head(page, run->history());
  for (const auto& [key, value] : head.items()) {
    std::string text = text_of(value);
    if (std::string& known = told.head[key]; known != text) known = std::move(text), message[key] = value;
  }
  if (ordered_json curves = told.curves.next(run->history()); !curves.empty() || is_whole)
    message["curves"] = std::move(curves);
  if (now.texts != told.versions.texts) {
    message["samples"] = report::page_samples(run->history());
    message["events"] = report::page_events(run->history());
  }
  told.versions = now;
  return message.empty() ? "" : text_of(message);
}

std::string Board::news_of_all(ToldTable& told) {
  const std::lock_guard lock(mutex_);
  const auto is_there = [this](const auto& known) { return find(known.first) != nullptr; };
  const bool is_whole = told.news.empty() || !std::all_of(told.news.begin(), told.news.end(), is_there);
  if (is_whole) told.news.clear();
  ordered_json rows = ordered_json::array();
  for (const auto& [folder, run] : runs_) {
    uint64_t& news = told.news[run->name()];
    if (std::exchange(news, run->versions().news) != run->versions().news) rows.push_back(row_json(run->row()));
  }
  if (rows.empty() && !is_whole) return "";
  return text_of({{"is_whole", is_whole}, {"runs", std::move(rows)}});
}

std::optional<std::string> Board::curves_of(const std::string& name) {
  const std::lock_guard lock(mutex_);
  FollowedRun* const run = find(name);
  if (!run) return std::nullopt;
  run->want(Clock::now());
  ordered_json all = report::SentCurves().next(run->history()), some = ordered_json::object();
  for (const char* curve : {"mean_loss", "validation_loss", "bits_per_byte", "seconds", "tokens"})
    some[curve] = std::move(all[curve]);
  if (const auto read = comparison_.text_and_tokens(run->folder()))
    some["text"] = read->text, some["tokens"] = read->tokens;
  return text_of(some);
}

std::string Board::comparison_text() {
  std::vector<ComparedRun> runs;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [folder, run] : runs_) runs.push_back({run->name(), folder, run->best()});
  }
  return comparison_.text(runs);
}

std::string Board::prometheus_text() {
  const std::lock_guard lock(mutex_);
  std::vector<RunRow> rows;
  for (const auto& [folder, run] : runs_) rows.push_back(run->row());
  return board::prometheus_text(rows);
}

bool Board::wait(uint64_t& seen, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return is_stopping_ || version_ != seen; });
  seen = version_;
  return !is_stopping_;
}

}  // namespace gpt::board
