#include "gpt/core/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/output.h"
#include "gpt/core/printable.h"
#include "gpt/core/terminal.h"

namespace gpt::log {
namespace {

enum class Kind { info, success, warning, error };

struct Prefix {
  const char *text, *colour;
};

Prefix prefix_of(Kind kind) {
  switch (kind) {
    case Kind::info: return {"", ""};
    case Kind::success: return {"✓ ", "\x1b[32m"};
    case Kind::warning: return {"warning: ", "\x1b[33m\x1b[1m"};
    case Kind::error: return {"error: ", "\x1b[31m\x1b[1m"};
  }
  return {};
}

constexpr const char *kPlain = "\x1b[m", *kEraseLine = "\r\x1b[K";

// A value that somebody gave may be as long as a command line; what it is about and what to do stand at the ends.
std::string shown(Kind kind, std::string_view message) {
  constexpr size_t kLongest = 2000;
  const bool is_complaint = kind == Kind::warning || kind == Kind::error;
  return printable(is_complaint ? shortened(message, kLongest) : std::string(message));
}

// The longest prefix of UTF-8 `text` with at most `columns` code points.
std::string_view truncate(std::string_view text, size_t columns) {
  size_t points = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_point = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (starts_point && points++ == columns) return text.substr(0, i);
  }
  return text;
}

// The text without the two signs beyond ASCII that the program's own words have.
std::string as_ascii(std::string text) {
  for (const auto& [sign, ascii] : {std::pair<std::string_view, std::string_view>{"✓", "*"}, {"±", "+/-"}})
    for (size_t at; (at = text.find(sign)) != std::string::npos;) text.replace(at, sign.size(), ascii);
  return text;
}

std::string as_locale_shows(std::string text) { return locale_is_utf8() ? text : as_ascii(std::move(text)); }

bool colours_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return !no_color || !*no_color;
}

class Log {
 public:
  Log() : file_("file") {
    file_.flush_on(spdlog::level::info);
    file_.set_error_handler([this](const std::string& what) { report_lost_line(what); });
  }

  // `shortened`: for a terminal that is too narrow for the message, unless it is empty.
  void write(Kind kind, std::string_view message, std::string_view shortened = {}) {
    if (rank_ > 0 && kind != Kind::error) {
      if (kind == Kind::warning && forward_) forward_(std::string(message));
      return;
    }
    if (kind == Kind::warning) tell_hearer(std::string(message));
    const std::lock_guard lock(mutex_);
    if (kind == Kind::warning && has_others_) warnings_.emplace(message);
    const std::string text = rank_ > 0 ? fmt::format("rank {}: {}", rank_, shown(kind, message)) : shown(kind, message);
    const std::string erase = status_.empty() ? "" : kEraseLine;
    const bool is_shown = !is_quiet_ || kind == Kind::warning || kind == Kind::error;
    if (is_shown)
      print(erase + coloured(kind) +
                (is_terminal() ? as_locale_shows(fitted(kind, text, printable(shortened))) : text) + "\n" +
                drawn_status(),
            1 + std::count(text.begin(), text.end(), '\n'));
    const std::string line = prefix_of(kind).text + text;
    file_.info(spdlog::string_view_t(line.data(), line.size()));
  }

  void open_file(const std::string& path) {
    const std::lock_guard lock(mutex_);
    try {
      auto sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(path);
      sink->set_pattern("%Y-%m-%d %H:%M:%S %v");
      file_.sinks() = {sink};
      file_name_ = path.substr(path.rfind('/') + 1);
    } catch (const spdlog::spdlog_ex& e) {
      throw Error(ExitCode::disk, fmt::format("cannot write the log {}: {}", path, e.what()));
    }
  }

  void status(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (rank_ > 0 || is_quiet_ || !is_terminal() || (text.empty() && status_.empty())) return;
    status_ = printable(text);
    if (status_.empty()) {
      print(kEraseLine, 0);
    } else if (!output::is_behind()) {
      print(drawn_status(), 0);
    }
  }

  bool flush(output::Wait wait) {
    if (!output::flush_errors(wait)) return false;
    const std::lock_guard lock(mutex_);
    print("", 0);  // what there is to say of missing lines
    return output::flush_errors(wait);
  }

  // Asked each time: standard error may become another file.
  static bool is_terminal() { return terminal_columns(STDERR_FILENO) > 0; }

  void be_quiet() { is_quiet_ = true; }

  void of_rank(int64_t rank, int64_t size, std::function<void(const std::string& warning)> forward) {
    rank_ = rank;
    has_others_ = size > 1;
    forward_ = std::move(forward);
  }

  void hear_warnings(std::function<void(const std::string& warning)> heard) {
    const std::lock_guard lock(hearing_);
    heard_ = std::move(heard);
  }

  void keep_warning(int64_t rank, const std::string& warning) {
    const std::lock_guard lock(mutex_);
    kept_.push_back({rank, warning, std::chrono::steady_clock::now()});
  }

  void show_kept_warnings() {
    constexpr std::chrono::seconds kForTheFirst(3);
    const auto due = std::chrono::steady_clock::now() - kForTheFirst;
    std::vector<std::string> texts;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(kept_, [&](const KeptWarning& kept) {
        if (kept.since > due) return false;
        if (warnings_.insert(kept.text).second) texts.push_back(fmt::format("rank {}: {}", kept.rank, kept.text));
        return true;
      });
    }
    for (const std::string& text : texts) write(Kind::warning, text);
  }

 private:
  void tell_hearer(const std::string& warning) {
    const std::lock_guard lock(hearing_);
    if (heard_) heard_(warning);
  }

  // Onto standard error, in whole or not at all. A line that nobody reads is missing there.
  void print(const std::string& text, int64_t lines) {
    if (output::offer(missing_ > 0 ? missing_note() + text : text)) {
      missing_ = 0;
    } else {
      missing_ += lines;
    }
  }

  // The line it begins on may show a status that should have been erased.
  std::string missing_note() const {
    const std::string note =
        fmt::format("{} missing here, because nothing read {}",
                    missing_ == 1 ? "1 line is" : with_commas(missing_) + " lines are", missing_ == 1 ? "it" : "them");
    return (is_terminal() ? kEraseLine : "") + coloured(Kind::warning) + note +
           (file_name_.empty() ? "\n" : fmt::format("; {} has {}\n", file_name_, missing_ == 1 ? "it" : "them"));
  }

  std::string coloured(Kind kind) const {
    const auto [text, colour] = prefix_of(kind);
    const std::string shown = is_terminal() ? as_locale_shows(text) : text;
    return *colour && is_terminal() && colours_wanted() ? fmt::format("{}{}{}", colour, shown, kPlain) : shown;
  }

  // What fits, or else what is broken between words, where the terminal would do that within one.
  static std::string fitted(Kind kind, const std::string& text, const std::string& shortened) {
    constexpr int kIndent = 2;
    const int columns = terminal_columns(STDERR_FILENO);
    const std::string prefix(prefix_of(kind).text);
    const bool fits = truncate(prefix + text, static_cast<size_t>(columns)).size() == prefix.size() + text.size();
    return wrap_text(prefix + (fits || shortened.empty() ? text : shortened), columns, kIndent).substr(prefix.size());
  }

  std::string drawn_status() const {
    if (status_.empty()) return "";
    // The last column stays free: a terminal that wraps there would leave a copy of the line behind at each redraw.
    return fmt::format("\r{}\x1b[K", truncate(status_, static_cast<size_t>(terminal_columns(STDERR_FILENO) - 1)));
  }

  // A full disk under the log file must not stop a run; it is reported once.
  void report_lost_line(const std::string& what) {
    if (std::exchange(lost_line_reported_, true)) return;
    print(fmt::format("{}the log file is missing lines from here on: {}\n", coloured(Kind::warning), printable(what)),
          1);
  }

  struct KeptWarning {
    int64_t rank;
    std::string text;
    std::chrono::steady_clock::time_point since;
  };

  std::mutex mutex_, hearing_;
  std::atomic<int64_t> rank_ = 0;
  std::atomic<bool> has_others_ = false, is_quiet_ = false;
  std::function<void(const std::string& warning)> forward_, heard_;
  std::set<std::string, std::less<>> warnings_;  // that have been given, where there are others
  std::vector<KeptWarning> kept_;
  spdlog::logger file_;
  std::string file_name_, status_;
  int64_t missing_ = 0;  // lines that standard error did not take
  bool lost_line_reported_ = false;
};

Log& instance() {
  static Log& log = *new Log;  // never destroyed: destructors of other statics may still log
  return log;
}

}  // namespace

void info(std::string_view message) { instance().write(Kind::info, message); }
void info(std::string_view message, std::string_view shortened) { instance().write(Kind::info, message, shortened); }
void success(std::string_view message) { instance().write(Kind::success, message); }
void warn(std::string_view message) { instance().write(Kind::warning, message); }
void error(std::string_view message) { instance().write(Kind::error, message); }
void open_file(const std::string& path) { instance().open_file(path); }
void status(std::string_view text) { instance().status(text); }
bool flush(output::Wait wait) { return instance().flush(wait); }
bool is_terminal() { return Log::is_terminal(); }
void be_quiet() { instance().be_quiet(); }
void of_rank(int64_t rank, int64_t size, std::function<void(const std::string& warning)> forward) {
  instance().of_rank(rank, size, std::move(forward));
}
void hear_warnings(std::function<void(const std::string& warning)> heard) {
  instance().hear_warnings(std::move(heard));
}
void warn_of_rank(int64_t rank, const std::string& warning) { instance().keep_warning(rank, warning); }
void show_warnings_of_ranks() { instance().show_kept_warnings(); }

}  // namespace gpt::log
