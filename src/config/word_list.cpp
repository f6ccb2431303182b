#include "gpt/config/word_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "gpt/config/node.h"
#include "gpt/config/option.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"

namespace gpt::config {
namespace {

constexpr std::string_view kSpaces = " \t\n", kBetweenWords = ", \t\n", kBetweenTexts = ",";

void add_words(std::string_view text, std::string_view between, std::vector<std::string>& words) {
  for (size_t begin, end = 0; (begin = text.find_first_not_of(between, end)) != std::string_view::npos;) {
    end = std::min(text.find_first_of(between, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const size_t first = word.find_first_not_of(kSpaces);
    if (first != std::string_view::npos)
      words.emplace_back(word.substr(first, word.find_last_not_of(kSpaces) + 1 - first));
  }
}

std::vector<std::string> read_words(const Node& node, std::string_view between) {
  std::vector<std::string> words;
  const std::vector<Node> alone{node};
  for (const Node& item : node.kind == Node::Kind::list ? node.items : alone) {
    if (item.kind != Node::Kind::scalar)
      throw Error(ExitCode::config, fmt::format("{}: must be words, like [a, b], got a list or a map", item.where));
    add_words(item.text, between, words);
  }
  return words;
}

std::string written(std::vector<std::string>& words) {
  std::vector<std::string> parts;
  for (std::string& word : words) parts.push_back(yaml_scalar(&word));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::vector<std::string> read_command(const Node& node) {
  if (node.kind != Node::Kind::list) return read_words(node, kSpaces);
  std::vector<std::string> words;
  for (const Node& item : node.items) {
    if (item.kind != Node::Kind::scalar)
      throw Error(ExitCode::config,
                  fmt::format("{}: must be a program and its arguments, like [curl, -d, \"@-\", URL], "
                              "got a list or a map as one of them",
                              item.where));
    words.push_back(item.text);
  }
  if (!words.empty() && words.front().empty())
    throw Error(ExitCode::config, fmt::format("{}: must begin with a program, got an empty text", node.where));
  return words;
}

}  // namespace

Structure word_list(std::vector<std::string>& words, bool may_have_spaces) {
  const std::string_view between = may_have_spaces ? kBetweenTexts : kBetweenWords;
  return {.read = [&words, between](const Node& node) { words = read_words(node, between); },
          .write = [&words] { return written(words); }};
}

Structure command_words(std::vector<std::string>& words) {
  return {.read = [&words](const Node& node) { words = read_command(node); },
          .write = [&words] { return written(words); }};
}

}  // namespace gpt::config
