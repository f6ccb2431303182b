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

void add_words(std::string_view text, std::vector<std::string>& words) {
  constexpr std::string_view kBetween = ", \t\n";
  for (size_t begin, end = 0; (begin = text.find_first_not_of(kBetween, end)) != std::string_view::npos;) {
    end = std::min(text.find_first_of(kBetween, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
  }
}

std::vector<std::string> read_words(const Node& node) {
  std::vector<std::string> words;
  const std::vector<Node> alone{node};
  for (const Node& item : node.kind == Node::Kind::list ? node.items : alone) {
    if (item.kind != Node::Kind::scalar)
      throw Error(ExitCode::config, fmt::format("{}: must be words, like [a, b], got a list or a map", item.where));
    add_words(item.text, words);
  }
  return words;
}

}  // namespace

Structure word_list(std::vector<std::string>& words) {
  return {.read = [&words](const Node& node) { words = read_words(node); },
          .write =
              [&words] {
                std::vector<std::string> parts;
                for (std::string& word : words) parts.push_back(yaml_scalar(&word));
                return fmt::format("[{}]", fmt::join(parts, ", "));
              }};
}

}  // namespace gpt::config
