#include "gpt/generate/line_reader.h"

#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "gpt/core/log.h"
#include "gpt/core/output.h"
#include "gpt/core/process.h"
#include "gpt/core/utf8.h"

namespace gpt::generate {
namespace {

constexpr int kHistorySize = 1000;
constexpr int kLookForSignalsMs = 50;
char prompt[] = "> ";

char* show_prompt(EditLine*) { return prompt; }

// What libedit reads with. No thread takes a signal here (see core/process.h), so the wait looks for one now and then; to
// libedit it is the end of the input, for which it restores the terminal. Bytes that are no UTF-8 are passed over.
int read_character(EditLine*, wchar_t* character) {
  for (std::string bytes;;) {
    if (!bytes.empty()) {
      const utf8::Scan next = utf8::scan(bytes, 0);
      if (next.kind == utf8::Scan::whole) {
        *character = static_cast<wchar_t>(next.value);
        return 1;
      }
      if (next.kind == utf8::Scan::broken) {
        bytes.erase(0, next.bytes);
        continue;
      }
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&input, 1, kLookForSignalsMs);
    if (process::stop_signal() != 0) return 0;
    if (ready <= 0) continue;
    char byte;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) return static_cast<int>(count);
    if (count > 0) bytes += byte;
  }
}

// Ctrl-Z: the shell gets its terminal back as it was, and the line is there again after `fg`.
unsigned char suspend(EditLine* editor, wint_t) {
  el_set(editor, EL_PREP_TERM, 0);
  kill(0, SIGTSTP);
  el_set(editor, EL_PREP_TERM, 1);
  return CC_REDISPLAY;
}

// Keys that people know from other programs and libedit does not have by itself.
constexpr std::pair<const char*, const char*> kKeys[] = {
    {"^R", "em-inc-search-prev"},      {"^Z", "gpt-suspend"}, {"\\e[1;5C", "em-next-word"},  // Ctrl-Right
    {"\\e[1;5D", "ed-prev-word"},                                                            // Ctrl-Left
    {"\\e[1~", "ed-move-to-beg"},                                                            // Home
    {"\\e[4~", "ed-move-to-end"},                                                            // End
    {"\\e[3~", "ed-delete-next-char"},                                                       // Delete
};

bool is_smart_terminal() {
  const char* name = std::getenv("TERM");
  return name && *name && std::string_view(name) != "dumb";
}

// Standard error, so that redirected text is text alone; where that is redirected itself, the screen is standard output.
FILE* screen() { return isatty(STDERR_FILENO) ? stderr : isatty(STDOUT_FILENO) ? stdout : nullptr; }

}  // namespace

class LineReader::Editor {
 public:
  // Nothing where libedit cannot work with the terminal.
  static std::unique_ptr<Editor> open(FILE* screen) {
    // Typed characters are UTF-8, as all text here, whatever LANG says; libedit takes their widths from the locale.
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "");
    EditLine* const editor = el_init("gpt-generate", stdin, screen, screen);
    return editor ? std::unique_ptr<Editor>(new Editor(editor, screen)) : nullptr;
  }
  ~Editor() {
    el_end(editor_);
    history_end(history_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::optional<std::string> next() {
    el_set(editor_, EL_PREP_TERM,
           1);  // before the prompt: what answers it at once is then keys, not the terminal's line
    int count = 0;
    const char* const typed = el_gets(editor_, &count);
    if (!typed || count <= 0 || process::stop_signal() != 0) {
      std::fputs("\n", screen_);
      return std::nullopt;
    }
    std::string line = typed;
    if (line.ends_with('\n')) line.pop_back();
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return line;
  }

 private:
  Editor(EditLine* editor, FILE* screen) : screen_(screen), editor_(editor), history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistorySize);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_PROMPT, show_prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_GETCFN, read_character);
    el_set(editor_, EL_ADDFN, "gpt-suspend", "stop until fg", suspend);
    el_set(editor_, EL_SETTY, "-d", "-susp", nullptr);  // Ctrl-Z is a key like others while a line is edited
    for (const auto& [key, command] : kKeys) el_set(editor_, EL_BIND, key, command, nullptr);
    el_source(editor_, nullptr);  // ~/.editrc
  }

  FILE* const screen_;
  EditLine* const editor_;
  History* const history_;
};

LineReader::LineReader() : at_terminal_(isatty(STDIN_FILENO)) {
  FILE* const shown = screen();
  if (at_terminal_ && shown && is_smart_terminal()) editor_ = Editor::open(shown);
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next() {
  constexpr output::Wait kShort{.patience = std::chrono::seconds(1)};
  output::flush(kShort);  // the prompt comes after it
  log::flush(kShort);
  if (editor_) return editor_->next();
  const process::LeaveAtFirstSignal waiting;
  if (process::stop_signal() != 0) return std::nullopt;  // it came before the wait
  if (at_terminal_) output::offer(prompt);
  std::string line;
  if (std::getline(std::cin, line)) {
    if (line.ends_with('\r')) line.pop_back();  // the CR of CRLF
    return line;
  }
  if (at_terminal_) output::offer("\n");
  return std::nullopt;
}

}  // namespace gpt::generate
