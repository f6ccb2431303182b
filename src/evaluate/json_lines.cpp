#include "json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/prepare/plain_text.h"

namespace gpt::evaluate {
namespace {

constexpr SizeLimit kTaskFile{"a file of a task", uint64_t{1} << 30};
constexpr int kDeepest = 16;  // a value that is shown in a message is written by recursion

std::string text_of(const std::string& path) {
  std::string text = read_file(path, ExitCode::data, kTaskFile);
  if (text.starts_with(prepare::kByteOrderMark)) text.erase(0, prepare::kByteOrderMark.size());
  return text;
}

}  // namespace

JsonLines::JsonLines(const std::string& path) : path_(path), text_(text_of(path)) {}

std::optional<nlohmann::json> JsonLines::next() {
  while (begin_ < text_.size()) {
    const size_t end = std::min(text_.find('\n', begin_), text_.size());
    const std::string_view line = std::string_view(text_).substr(begin_, end - begin_);
    begin_ = end + 1;
    ++line_;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const auto is_flat = [this](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      if (depth > kDeepest) fail(place(), "it is nested too deep");
      return true;
    };
    nlohmann::json object = nlohmann::json::parse(line, is_flat, /*allow_exceptions=*/false);
    if (object.is_discarded()) fail(place(), "it is not JSON; each line of the file must be one JSON object");
    return object;
  }
  return std::nullopt;
}

double JsonLines::share() const {
  return static_cast<double>(std::min(begin_, text_.size())) / static_cast<double>(std::max<size_t>(1, text_.size()));
}

std::string JsonLines::place() const { return fmt::format("{}: line {}", path_, line_); }

}  // namespace gpt::evaluate
