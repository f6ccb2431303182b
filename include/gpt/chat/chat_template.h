// How a model is talked to: from a dialogue to the tokens that it answers. The template is the model's own, in Jinja.
//
// What people say gives no orders, unless they are trusted: a special token that is spelled out in a message is encoded as text, although the
// template's own become tokens. What the model has answered keeps the ids that it was drawn as, wherever the template leaves answers as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "gpt/chat/dialogue.h"
#include "gpt/chat/named_templates.h"
#include "gpt/jinja/template.h"
#include "gpt/tokenizer/text_format.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::chat {

class MarkedWords;

bool has_chat_ml_tokens(const tokenizer::Tokenizer& tokenizer);

// Immutable, and safe to use from several threads at once.
class ChatTemplate {
 public:
  // `tokenizer` must outlive it. The names of the format's tokens are variables of the template. Throws TemplateError.
  ChatTemplate(std::string source, const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer,
               Markup markup = Markup::text);

  // The text of the dialogue; with `asks`, up to where the answer begins. Throws TemplateError, and Refusal where the template wants no such
  // dialogue.
  jinja::Rendered render(const Dialogue& dialogue, bool asks, std::optional<std::time_t> now = {}) const;

  // The ids that the answer follows. The ids of an answer that the template rewrites are taken away from the dialogue: its text is encoded
  // then, as the template has it. Throws as render() does, and what Tokenizer::encode() throws.
  std::vector<int32_t> encode(Dialogue& dialogue, std::optional<std::time_t> now = {}) const;

  // All that end an answer: the model's, and those that end a turn in the template.
  const std::vector<int32_t>& ends() const { return ends_; }

  // For who follows words through the template: what render() makes of the first `count` messages, whose words those of `words` are.
  jinja::Rendered render(const MarkedWords& words, const Dialogue& dialogue, size_t count, bool asks,
                         std::time_t now) const;
  MarkedWords mark(const Dialogue& dialogue) const;
  const std::string& source() const { return source_; }

 private:
  jinja::Rendered render_contents(const std::vector<std::string>& contents, const Dialogue& dialogue, size_t count,
                                  bool asks, std::optional<std::time_t> now) const;

  std::string source_;
  Markup markup_;
  jinja::Template template_;
  const tokenizer::Tokenizer* tokenizer_;
  jinja::Variables variables_;
  std::vector<int32_t> ends_;
};

// The template of a model. Throws gpt::Error(config) where it has none, and its tokenizer lacks ChatML's tokens: one line with what to do.
struct ChosenTemplate {
  ChatTemplate chat;
  bool is_fallback = false;  // ChatML, because the model came without
};
ChosenTemplate choose_template(const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer,
                               Markup markup = Markup::text);
// Whether there is one.
bool can_chat(const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer);

}  // namespace gpt::chat
