#include "stray_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gpt/config/value.h"
#include "gpt/core/file.h"

namespace gpt::config {
namespace {

namespace fs = std::filesystem;

bool is_flag(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// A pattern that the shell may have made these files of.
std::string pattern_of(const std::vector<std::string>& files) {
  const fs::path first = files.front();
  const auto all = [&](auto part) {
    return std::all_of(files.begin(), files.end(), [&](const fs::path& file) { return part(file) == part(first); });
  };
  const std::string name =
      all([](const fs::path& file) { return file.extension(); }) ? "*" + first.extension().string() : "*";
  return all([](const fs::path& file) { return file.parent_path(); }) ? (first.parent_path() / name).string() : name;
}

std::string shown(const std::vector<std::string>& files) {
  return fmt::format("{}, {}{}", in_quotes(files[0]), in_quotes(files[1]), files.size() > 2 ? ", ..." : "");
}

}  // namespace

std::string stray_word_fault(const std::vector<std::string>& arguments, size_t place,
                             const std::function<std::string(const std::string& path)>& flag_for) {
  const std::string& word = arguments[place];
  const bool follows_value = place > 1 && is_flag(arguments[place - 2]) && !is_flag(arguments[place - 1]) &&
                             arguments[place - 2].find('=') == std::string::npos;
  std::vector<std::string> files;
  for (size_t i = follows_value ? place - 1 : place; i < arguments.size() && exists(arguments[i]); ++i) {
    files.push_back(arguments[i]);
  }
  if (follows_value && files.size() > 1) {
    const std::string& flag = arguments[place - 2];
    return fmt::format(
        "{} takes one value, but {} files follow it ({}); if the shell expanded a pattern, put the pattern in "
        "quotes: {} '{}'",
        flag, files.size(), shown(files), flag, pattern_of(files));
  }
  if (follows_value) {
    return fmt::format("unexpected argument {} after {}; a flag takes one value, and a value with spaces needs quotes",
                       in_quotes(word), in_quotes(arguments[place - 2] + " " + arguments[place - 1]));
  }
  if (!files.empty() && flag_for) {
    const std::string flag = flag_for(word);
    const std::string value = files.size() > 1 ? fmt::format("'{}', with the quotes", pattern_of(files)) : word;
    return fmt::format("{} has no flag before it; did you mean {} {}?", in_quotes(word), flag, value);
  }
  return fmt::format("unexpected argument {}; a value must follow its flag, and a value with spaces needs quotes",
                     in_quotes(word));
}

}  // namespace gpt::config
