#include "gpt/chat/learned_conversation.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "marked_words.h"
#include "token_places.h"

namespace gpt::chat {
namespace {

// 26 July 2024, the date that Llama's templates have where they know of none: ids must not depend on the day on which they are made.
constexpr std::time_t kNow = 1721995200;

constexpr const char* kBlanks = " \t\n\v\f\r";

bool is_answer(const Message& message) { return message.role == kAssistant; }

bool has_words(const Message& message) { return message.content.find_first_not_of(kBlanks) != std::string::npos; }

bool says_something(const Message& message) { return is_answer(message) && has_words(message); }

Dialogue up_to_last_answer(const Dialogue& dialogue) {
  const auto last = std::find_if(dialogue.rbegin(), dialogue.rend(), says_something);
  return {dialogue.begin(), last.base()};
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Where the last answer stands in a text that does not begin as its question does.
jinja::Span span_of_words(const MarkedWords& words, const std::string& whole) {
  const size_t begin = whole.rfind(without_blanks(words.contents().back()));
  if (begin == std::string::npos)
    throw jinja::TemplateError("the chat template changes the last answer, so that its place cannot be found");
  return {begin, whole.size()};
}

}  // namespace

ConversationEncoder::ConversationEncoder(ChatTemplate chat, const tokenizer::Tokenizer& tokenizer, Learn learn)
    : chat_(std::move(chat)), tokenizer_(tokenizer), learn_(learn) {}

bool ConversationEncoder::is_end(int32_t id) const {
  return std::find(chat_.ends().begin(), chat_.ends().end(), id) != chat_.ends().end();
}

// How far all of the conversation is what its first messages are by themselves.
std::optional<ConversationEncoder::Agreement> ConversationEncoder::agreement(const MarkedWords& words,
                                                                             const Dialogue& dialogue, size_t count,
                                                                             bool asks,
                                                                             const std::string& whole) const {
  try {
    const std::string text = chat_.render(words, dialogue, count, asks, kNow).text;
    const auto [end, unused] = std::mismatch(text.begin(), text.end(), whole.begin(), whole.end());
    return Agreement{static_cast<size_t>(end - text.begin()), without_blanks({end, text.end()}).empty()};
  } catch (const jinja::TemplateError&) {  // such a dialogue may not end there
    return std::nullopt;
  }
}

std::optional<jinja::Span> ConversationEncoder::span_of(const MarkedWords& words, const Dialogue& dialogue,
                                                        size_t answer, const std::string& whole) const {
  const auto asked = agreement(words, dialogue, answer, /*asks=*/true, whole);
  if (!asked || !asked->is_all) return std::nullopt;
  if (answer + 1 == dialogue.size()) return jinja::Span{asked->bytes, whole.size()};
  const auto answered = agreement(words, dialogue, answer + 1, /*asks=*/false, whole);
  if (!answered || answered->bytes < asked->bytes) return std::nullopt;
  const std::string_view agreed = std::string_view(whole).substr(asked->bytes, answered->bytes - asked->bytes);
  // Some templates end a text that is not to be gone on with by a token of its own: the answer is the same for all that.
  const bool has_answer = agreed.find(without_blanks(words.contents()[answer])) != std::string_view::npos;
  if (!answered->is_all && !has_answer) return std::nullopt;
  return jinja::Span{asked->bytes, answered->bytes};
}

ConversationEncoder::Answers ConversationEncoder::find_answers(const MarkedWords& words, const Dialogue& dialogue,
                                                               const jinja::Rendered& whole) const {
  Answers answers;
  if (!whole.generated.empty()) {
    answers = {whole.generated, /*are_generated=*/true};
    if (learn_ == Learn::last) answers.spans = {answers.spans.back()};
    return answers;
  }
  const auto last = std::find_if(dialogue.rbegin(), dialogue.rend(), is_answer);
  const auto last_answer = static_cast<size_t>(std::distance(dialogue.begin(), last.base())) - 1;
  for (size_t i = learn_ == Learn::last ? last_answer : 0; i <= last_answer && !answers.last_only; ++i) {
    if (!is_answer(dialogue[i])) continue;
    const auto span = span_of(words, dialogue, i, whole.text);
    answers.last_only = !span;
    if (span) answers.spans.push_back(*span);
  }
  if (!answers.last_only || learn_ == Learn::all) return answers;
  const auto span = span_of(words, dialogue, last_answer, whole.text);
  answers.spans = {span ? *span : span_of_words(words, whole.text)};
  return answers;
}

// What is learned of the answer whose tokens are those from `begin` to `end`.
void ConversationEncoder::learn_answer(size_t begin, size_t end, bool is_generated,
                                       LearnedConversation& conversation) const {
  if (begin == end) return;
  // The template may say that an answer is over just before the token that ends its turn.
  const size_t reach = std::min(is_generated ? end + 1 : end, conversation.ids.size());
  size_t last = begin;
  while (last < reach && !is_end(conversation.ids[last])) ++last;
  if (last == reach) last = end - 1;
  conversation.ends[last] = true;
  for (size_t i = begin; i < (is_generated ? end : last + 1); ++i) conversation.learned[i] = true;
  ++conversation.answers;
}

LearnedConversation ConversationEncoder::encode(const Dialogue& dialogue) const {
  const Dialogue kept = learn_ == Learn::all ? dialogue : up_to_last_answer(dialogue);
  if (std::none_of(kept.begin(), kept.end(), says_something)) return {};
  const MarkedWords words = chat_.mark(kept);
  const jinja::Rendered whole = chat_.render(words, kept, kept.size(), /*asks=*/false, kNow);
  const Answers answers = find_answers(words, kept, whole);
  const TokenPlaces tokens(words.without_marks(whole.text), tokenizer_);
  const size_t size = tokens.ids().size();
  LearnedConversation result{tokens.ids(), std::vector<bool>(size, learn_ == Learn::all), std::vector<bool>(size)};
  const auto offset_of = [&](size_t place) {
    return words.without_marks(std::string_view(whole.text).substr(0, place)).text.size();
  };
  for (const jinja::Span& span : answers.spans) {
    // A token at an edge is learned, though it may begin before the answer, as transformers marks it.
    const size_t behind_first = tokens.first_from(offset_of(span.begin) + 1),
                 end = tokens.first_from(offset_of(span.end));
    learn_answer(std::min(std::max<size_t>(behind_first, 1) - 1, end), end, answers.are_generated, result);
  }
  if (size > 0) result.learned[0] = false;
  if (std::find(result.learned.begin(), result.learned.end(), true) == result.learned.end()) return {};
  const auto is_turn = [](const Message& message) { return message.role != kSystem; };
  result.turns = std::count_if(kept.begin(), kept.end(), is_turn);
  result.last_answer_only = answers.last_only && learn_ == Learn::answers;
  return result;
}

}  // namespace gpt::chat
