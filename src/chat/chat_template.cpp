#include "gpt/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gpt/core/error.h"
#include "marked_words.h"

namespace gpt::chat {
namespace {

using jinja::Value;

constexpr const char *kTurnBegins = "<|im_start|>", *kTurnEnds = "<|im_end|>";

std::optional<int32_t> special_id(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  for (const tokenizer::SpecialToken& special : tokenizer.special_tokens())
    if (special.text == text) return special.id;
  return std::nullopt;
}

// Says that it was the template, and not the program, that failed.
template <class Work>
auto of_template(const Work& work) {
  try {
    return work();
  } catch (const jinja::Refusal& refusal) {
    throw jinja::Refusal(std::string("the chat template does not take this dialogue: ") + refusal.what());
  } catch (const jinja::TemplateError& error) {
    throw jinja::TemplateError(std::string("the chat template, ") + error.what());
  }
}

// As special_tokens_map has them.
jinja::Variables token_names(const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer) {
  jinja::Variables names;
  const auto add = [&](const char* name, const std::optional<int32_t>& id) {
    if (id && *id < tokenizer.vocab_size()) names.emplace_back(name, tokenizer.piece(*id, false));
  };
  add("bos_token", format.begin);
  add("eos_token", format.end());
  add("pad_token", format.pad);
  add("unk_token", format.unknown);
  return names;
}

// The model's, and what ends a turn in the template although no file of the model calls it an end.
std::vector<int32_t> ends_of(const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer,
                             std::string_view source) {
  constexpr std::array kEndsOfTurns = {kTurnEnds, "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|eot|>", "<turn|>"};
  std::vector<int32_t> ends = format.ends;
  const auto add = [&ends](const std::optional<int32_t>& id) {
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  };
  add(format.tokenizer_end);
  for (const std::string_view text : kEndsOfTurns)
    if (source.find(text) != std::string_view::npos) add(special_id(tokenizer, text));
  return ends;
}

// Whether `rendered`, a dialogue as its template has it, is `marked` with the answers in their places, as they are but for white space around
// them. Otherwise the first that is not.
struct Rewritten {
  bool none = false;
  std::optional<size_t> message = {};
};

Rewritten find_rewritten(std::string_view rendered, std::string_view marked, const MarkedWords& words) {
  size_t at = 0, from = 0;
  std::optional<size_t> before;  // the answer before the piece
  for (bool is_last = false; !is_last;) {
    const std::optional<AnswerPlace> answer = words.next_answer(marked, from);
    is_last = !answer;
    const std::string_view piece = marked.substr(from, answer ? answer->begin - from : std::string_view::npos);
    if (!rendered.substr(at).starts_with(piece)) return {false, before};
    at += piece.size();
    if (is_last) return {at == rendered.size(), before};
    from = answer->end, before = answer->message;
    // The longest form that fits: a shorter one may be the beginning of a longer one.
    const std::string_view whole = words.contents()[answer->message];
    constexpr const char* kWhite = " \t\n\v\f\r";
    const size_t first = std::min(whole.find_first_not_of(kWhite), whole.size()),
                 last = whole.find_last_not_of(kWhite) + 1;
    const std::string_view stripped = first < last ? whole.substr(first, last - first) : "";
    const std::string_view forms[] = {whole, whole.substr(first), whole.substr(0, last), stripped};
    const std::optional<AnswerPlace> next = words.next_answer(marked, from);
    const std::string_view behind = marked.substr(from, next ? next->begin - from : std::string_view::npos);
    const auto fits = [&](std::string_view form) {
      return rendered.substr(at).starts_with(form) && rendered.substr(at + form.size()).starts_with(behind);
    };
    const auto form = std::find_if(std::begin(forms), std::end(forms), fits);
    if (form == std::end(forms)) return {false, before};
    at += form->size();
  }
  return {};
}

}  // namespace

bool has_chat_ml_tokens(const tokenizer::Tokenizer& tokenizer) {
  return special_id(tokenizer, kTurnBegins) && special_id(tokenizer, kTurnEnds);
}

ChatTemplate::ChatTemplate(std::string source, const tokenizer::TextFormat& format,
                           const tokenizer::Tokenizer& tokenizer, Markup markup)
    : source_(std::move(source)),
      markup_(markup),
      template_(of_template([this] { return jinja::Template(source_); })),
      tokenizer_(&tokenizer),
      variables_(token_names(format, tokenizer)),
      ends_(ends_of(format, tokenizer, source_)) {}

MarkedWords ChatTemplate::mark(const Dialogue& dialogue) const { return {dialogue, source_, *tokenizer_, markup_}; }

jinja::Rendered ChatTemplate::render_contents(const std::vector<std::string>& contents, const Dialogue& dialogue,
                                              size_t count, bool asks, std::optional<std::time_t> now) const {
  std::vector<Value> messages;
  for (size_t i = 0; i < count; ++i)
    messages.push_back(Value::mapping({{"role", dialogue[i].role}, {"content", contents[i]}}));
  jinja::Variables variables = variables_;
  variables.emplace_back("messages", Value::list(std::move(messages)));
  variables.emplace_back("add_generation_prompt", asks);
  for (const char* absent : {"tools", "documents"}) variables.emplace_back(absent, jinja::None{});
  return of_template([&] { return template_.render(variables, now); });
}

jinja::Rendered ChatTemplate::render(const Dialogue& dialogue, bool asks, std::optional<std::time_t> now) const {
  std::vector<std::string> contents;
  for (const Message& message : dialogue) contents.push_back(message.content);
  return render_contents(contents, dialogue, dialogue.size(), asks, now);
}

jinja::Rendered ChatTemplate::render(const MarkedWords& words, const Dialogue& dialogue, size_t count, bool asks,
                                     std::time_t now) const {
  return render_contents(words.contents(), dialogue, count, asks, now);
}

std::vector<int32_t> ChatTemplate::encode(Dialogue& dialogue, std::optional<std::time_t> now) const {
  const std::time_t time = now.value_or(std::time(nullptr));  // the same in all renderings
  const MarkedWords words = mark(dialogue);
  const std::string rendered = render_contents(words.contents(), dialogue, dialogue.size(), /*asks=*/true, time).text;
  std::string marked = rendered;
  const auto keeps = [](const Message& message) { return !message.ids.empty(); };
  while (std::any_of(dialogue.begin(), dialogue.end(), keeps)) {
    std::vector<std::string> contents = words.contents();
    for (size_t i = 0; i < dialogue.size(); ++i)
      if (keeps(dialogue[i])) contents[i] = words.answer(i);
    marked = render_contents(contents, dialogue, dialogue.size(), /*asks=*/true, time).text;
    const Rewritten rewritten = find_rewritten(rendered, marked, words);
    if (rewritten.none) break;
    const auto of_it = rewritten.message ? dialogue.begin() + static_cast<ptrdiff_t>(*rewritten.message)
                                         : std::find_if(dialogue.begin(), dialogue.end(), keeps);
    of_it->ids.clear();
    marked = rendered;
  }
  std::vector<int32_t> ids;
  const auto encode_piece = [&](std::string_view piece) { encode_plain(words.without_marks(piece), *tokenizer_, ids); };
  size_t from = 0;
  while (const std::optional<AnswerPlace> answer = words.next_answer(marked, from)) {
    encode_piece(std::string_view(marked).substr(from, answer->begin - from));
    const std::vector<int32_t>& kept = dialogue[answer->message].ids;
    ids.insert(ids.end(), kept.begin(), kept.end());
    from = answer->end;
  }
  encode_piece(std::string_view(marked).substr(from));
  return ids;
}

bool can_chat(const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer) {
  return !format.chat_template.empty() || has_chat_ml_tokens(tokenizer);
}

ChosenTemplate choose_template(const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer,
                               Markup markup) {
  if (!format.chat_template.empty()) return {ChatTemplate(format.chat_template, format, tokenizer, markup)};
  if (has_chat_ml_tokens(tokenizer)) return {ChatTemplate(kChatMl, format, tokenizer, markup), /*is_fallback=*/true};
  throw Error(
      ExitCode::config,
      "this model has no chat template, and its tokenizer lacks <|im_start|> and <|im_end|>: it continues texts and does not answer; "
      "teach it with gpt-train on a file of conversations, name a template with --chat-template, or leave --chat out");
}

}  // namespace gpt::chat
