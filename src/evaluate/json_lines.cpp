#include "json_lines.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/prepare/plain_text.h"

namespace gpt::evaluate {
namespace {

constexpr SizeLimit kTaskFile{"a file of a task", uint64_t{1} << 30};

std::string text_of(const std::string& path) {
  std::string text = read_file(path, ExitCode::data, kTaskFile);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
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
    nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_discarded()) fail(place(), "it is not JSON; each line of the file must be one JSON object");
    return object;
  }
  return std::nullopt;
}

std::string JsonLines::place() const { return fmt::format("{}: line {}", path_, line_); }

}  // namespace gpt::evaluate
