#include "conversation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/utf8.h"

namespace gpt::prepare {
namespace {

constexpr int64_t kMostCharacters = 200;

// Tokens that follow each other and are learned, or are not.
struct Stretch {
  bool is_learned;
  std::string text;
};

std::string with_spelled_line_ends(std::string_view text) {
  std::string result;
  for (const char c : text) c == '\n' ? result += "\\n" : result += c;
  return result;
}

std::vector<Stretch> first_conversation(const tokenizer::Tokenizer& tokenizer, const data::Tokens& tokens) {
  std::vector<Stretch> stretches;
  for (int64_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && (tokens.mark(i) & data::TokenMark::kBegins) != 0) break;
    const bool is_learned = tokens.is_learned(i);
    if (stretches.empty() || stretches.back().is_learned != is_learned) stretches.push_back({is_learned, ""});
    stretches.back().text += tokenizer.piece(tokens[i], /*begins_text=*/i == 0);
  }
  for (Stretch& stretch : stretches) stretch.text = printable_line(with_spelled_line_ends(stretch.text));
  return stretches;
}

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return utf8::begins_character(c); });
}

std::string_view first_characters(std::string_view text, int64_t count) {
  size_t end = 0;
  while (end < text.size() && (count > 0 || !utf8::begins_character(text[end])))
    count -= utf8::begins_character(text[end++]);
  return text.substr(0, end);
}

std::string joined(const std::vector<Stretch>& stretches, int64_t most_of_each) {
  std::string line;
  for (const auto& [is_learned, text] : stretches) {
    const std::string_view shown = first_characters(text, most_of_each);
    line += fmt::format(fmt::runtime(is_learned ? "{}{}" : "[{}{}]"), shown, shown.size() < text.size() ? "..." : "");
  }
  return line;
}

}  // namespace

std::string describe_conversations(const data::Metadata& metadata) {
  const data::ConversationCounts& counts = metadata.conversations;
  const auto& [train, validation] = std::pair(metadata.train, metadata.validation);
  const std::string learned =
      counts.learn == "all" ? "every word is learned"
                            : plural(counts.answers, "answer") + (counts.answers == 1 ? " is learned" : " are learned");
  std::string line =
      fmt::format("{} ('{}') with {}: {}, {} of {}", plural(train.documents + validation.documents, "conversation"),
                  counts.shape, plural(counts.turns, "turn"), learned, with_commas(train.learned + validation.learned),
                  plural(train.tokens + validation.tokens, "token"));
  if (counts.last_answer_only > 0) {
    line += fmt::format("; of {} the last answer alone, because the chat template rewrites earlier turns",
                        with_commas(counts.last_answer_only));
  }
  if (counts.unanswered > 0) line += fmt::format("; left out: {} without an answer", with_commas(counts.unanswered));
  return line;
}

std::string show_first_conversation(const data::Corpus& corpus) {
  const std::vector<Stretch> stretches = first_conversation(*corpus.tokenizer, corpus.train);
  int64_t most = kMostCharacters;  // of each stretch
  std::string line = joined(stretches, most);
  while (most > 10 && characters(line) > kMostCharacters) line = joined(stretches, most = most * 3 / 4);
  if (characters(line) <= kMostCharacters) return line;
  return std::string(first_characters(line, kMostCharacters - 3)) + "...";
}

void report_conversations(const data::Corpus& corpus, const data::Metadata& metadata) {
  log::info(fmt::format("{}: {}", corpus.source, describe_conversations(metadata)));
  if (corpus.tokenizer)
    log::info(fmt::format("The first one, with what is not learned in brackets: {}", show_first_conversation(corpus)));
}

}  // namespace gpt::prepare
