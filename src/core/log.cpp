#include "gpt/core/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/terminal.h"

namespace gpt::log {
namespace {

using Level = spdlog::level::level_enum;
// spdlog colours by level: one that is otherwise unused here carries the green tick.
constexpr Level kSuccess = spdlog::level::debug;

std::string_view prefix_of(Level level) {
  return level == kSuccess              ? "✓ "
         : level == spdlog::level::warn ? "warning: "
         : level == spdlog::level::err  ? "error: "
                                        : "";
}

class Prefix : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view text = prefix_of(message.level);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Prefix>(); }
};

std::unique_ptr<spdlog::formatter> formatter(const std::string& pattern) {
  auto result = std::make_unique<spdlog::pattern_formatter>();
  result->add_flag<Prefix>('*').set_pattern(pattern);
  return result;
}

// A value that somebody gave may be as long as a command line; what it is about and what to do stand at the ends.
std::string shown(Level level, std::string_view message) {
  constexpr size_t kLongest = 2000;
  const bool is_complaint = level == spdlog::level::warn || level == spdlog::level::err;
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

bool colours_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return !no_color || !*no_color;
}

class Log {
 public:
  Log() : console_("console"), file_("file") {
    using Sink = spdlog::sinks::ansicolor_stderr_sink_st;
    auto sink =
        std::make_shared<Sink>(terminal_ && colours_wanted() ? spdlog::color_mode::always : spdlog::color_mode::never);
    sink->set_color(kSuccess, sink->green);
    sink->set_color(spdlog::level::info, sink->reset);
    sink->set_formatter(formatter("%^%*%$%v"));
    console_.sinks().push_back(sink);
    for (spdlog::logger* logger : {&console_, &file_}) {
      logger->set_level(spdlog::level::trace);
      logger->flush_on(spdlog::level::trace);
      logger->set_error_handler([this](const std::string& what) { report_lost_line(what); });
    }
  }

  // `shortened`: for a terminal that is too narrow for the message, unless it is empty.
  void write(Level level, std::string_view message, std::string_view shortened = {}) {
    std::lock_guard lock(mutex_);
    if (!status_.empty()) std::fputs("\r\x1b[K", stderr);
    const std::string text = shown(level, message);
    write(console_, level, terminal_ ? fitted(level, text, printable(shortened)) : text);
    write(file_, level, text);
    draw_status();
  }

  void open_file(const std::string& path) {
    std::lock_guard lock(mutex_);
    try {
      auto sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(path);
      sink->set_formatter(formatter("%Y-%m-%d %H:%M:%S %*%v"));
      file_.sinks() = {sink};
    } catch (const spdlog::spdlog_ex& e) {
      throw Error(ExitCode::disk, fmt::format("cannot write the log {}: {}", path, e.what()));
    }
  }

  void status(std::string_view text) {
    std::lock_guard lock(mutex_);
    if (!terminal_ || (text.empty() && status_.empty())) return;
    status_ = printable(text);
    if (status_.empty()) std::fputs("\r\x1b[K", stderr);
    draw_status();
  }

  bool terminal() const { return terminal_; }

 private:
  static void write(spdlog::logger& logger, Level level, const std::string& text) {
    logger.log(level, spdlog::string_view_t(text.data(), text.size()));
  }

  // What fits, or else what is broken between words, where the terminal would do that within one.
  static std::string fitted(Level level, const std::string& text, const std::string& shortened) {
    constexpr int kIndent = 2;
    const int columns = terminal_columns(STDERR_FILENO);
    const std::string prefix(prefix_of(level));
    const bool fits = truncate(prefix + text, static_cast<size_t>(columns)).size() == prefix.size() + text.size();
    return wrap_text(prefix + (fits || shortened.empty() ? text : shortened), columns, kIndent).substr(prefix.size());
  }

  void draw_status() {
    if (status_.empty()) return;
    // The last column stays free: a terminal that wraps there would leave a copy of the line behind at each redraw.
    const std::string_view visible = truncate(status_, static_cast<size_t>(terminal_columns(STDERR_FILENO) - 1));
    const std::string line = fmt::format("\r{}\x1b[K", visible);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  }

  // A full disk under the log file must not stop a run; it is reported once.
  void report_lost_line(const std::string& what) {
    if (lost_line_reported_) return;
    lost_line_reported_ = true;
    std::fprintf(stderr, "warning: the log file is missing lines from here on: %s\n", printable(what).c_str());
  }

  std::mutex mutex_;
  const bool terminal_ = terminal_columns(STDERR_FILENO) > 0;
  spdlog::logger console_, file_;
  std::string status_;
  bool lost_line_reported_ = false;
};

Log& instance() {
  static Log& log = *new Log;  // never destroyed: destructors of other statics may still log
  return log;
}

}  // namespace

void info(std::string_view message) { instance().write(spdlog::level::info, message); }
void info(std::string_view message, std::string_view shortened) {
  instance().write(spdlog::level::info, message, shortened);
}
void success(std::string_view message) { instance().write(kSuccess, message); }
void warn(std::string_view message) { instance().write(spdlog::level::warn, message); }
void error(std::string_view message) { instance().write(spdlog::level::err, message); }
void open_file(const std::string& path) { instance().open_file(path); }
void status(std::string_view text) { instance().status(text); }
bool is_terminal() { return instance().terminal(); }

}  // namespace gpt::log
