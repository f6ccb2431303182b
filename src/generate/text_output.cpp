#include "gpt/generate/text_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/log.h"
#include "gpt/core/output.h"
#include "gpt/core/printable.h"

namespace gpt::generate {
namespace {

namespace fs = std::filesystem;

// The file itself where `path` is a link to one: the link stays. A device or a pipe must not be replaced by a file.
std::string writable_file(const std::string& path) {
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) return path;
  const fs::path file = fs::canonical(path, error);
  if (fs::is_regular_file(file, error)) return file.string();
  const char* what = fs::is_directory(file, error) ? "it is a folder" : "it is not a regular file";
  throw Error(ExitCode::disk, fmt::format("cannot write {}: {}", path, what));
}

}  // namespace

TextOutput::TextOutput(const std::string& path, bool raw)
    : path_(writable_file(path)), escapes_(path_.empty() && !raw && isatty(STDOUT_FILENO)) {
  if (!path_.empty()) AtomicFile{path_};  // fails now rather than after the work; leaves nothing
}

bool TextOutput::write(std::string_view text) {
  if (!path_.empty()) {
    text_ += text;
  } else {
    is_open_ = output::write(escapes_ ? printable(text) : text);
  }
  if (!text.empty()) at_line_start_ = text.ends_with('\n');
  return is_open_;
}

void TextOutput::end_line() {
  if (!at_line_start_) write("\n");
}

void TextOutput::finish() {
  if (path_.empty()) return;
  AtomicFile file(path_);
  file.write(text_);
  file.commit();
  log::success(path_);
}

}  // namespace gpt::generate
