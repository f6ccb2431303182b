#include "gpt/tokenizer/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "extended_tokenizer.h"
#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;

constexpr const char* kOrigin = "the tokenizer with new tokens";

void refuse_ordinary_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto found = std::find(texts.begin(), texts.end(), tokenizer.piece(id, /*begins_text=*/false));
    if (found == texts.end()) continue;
    throw Error(ExitCode::config,
                fmt::format("{} is to be a special token, and the tokenizer has it as an ordinary one (id {}); choose "
                            "another chat template, or mark it as special in its file",
                            *found, id));
  }
}

std::unique_ptr<Tokenizer> extended(BpeModel model, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    model.special_tokens.push_back({text, static_cast<int32_t>(model.tokens.size())});
    model.tokens.push_back(text);
  }
  return std::make_unique<BpeTokenizer>(std::move(model), kOrigin);
}

// A tokenizer.json that is kept as it was read. The vocabulary has the new tokens, too: Hugging Face numbers others by itself, which comes
// to the same only where no id is unused.
std::string extended(json file, int64_t size, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const SpecialToken token{text, static_cast<int32_t>(size)};
    file["added_tokens"].push_back(json(added_tokens({&token, 1})[0]));
    file["model"]["vocab"][text] = size++;
  }
  return file.dump();
}

bool is_extension(const Tokenizer& tokenizer, const Tokenizer& base) {
  const std::vector<std::string> added = special_tokens_beyond(base, tokenizer);
  const bool is_longer = base.vocab_size() + std::ssize(added) == tokenizer.vocab_size() && !added.empty();
  return is_longer && with_special_tokens(base, added)->to_json() == tokenizer.to_json();
}

}  // namespace

nlohmann::ordered_json added_tokens(std::span<const SpecialToken> tokens) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SpecialToken& token : tokens) {
    list.push_back({{"id", token.id},
                    {"content", token.text},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

bool has_special_token(const Tokenizer& tokenizer, const std::string& text) {
  const auto specials = tokenizer.special_tokens();
  return std::any_of(specials.begin(), specials.end(), [&](const SpecialToken& token) { return token.text == text; });
}

std::unique_ptr<Tokenizer> with_special_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  refuse_ordinary_tokens(tokenizer, texts);
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer)) return extended(bpe->model(), texts);
  json file = json::parse(tokenizer.to_json());
  if (file.contains("model"))
    return tokenizer_from_json(extended(std::move(file), tokenizer.vocab_size(), texts), kOrigin);
  json& specials = file[ExtendedTokenizer::kSpecialTokens];
  for (const std::string& text : texts) specials.push_back(text);
  return tokenizer_from_json(file.dump(), kOrigin);
}

std::vector<std::string> special_tokens_beyond(const Tokenizer& base, const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (const SpecialToken& token : tokenizer.special_tokens())
    if (token.id >= base.vocab_size()) texts.push_back(token.text);
  return texts;
}

void require_same_tokenizer(const std::string& spec, const std::string& saved) {
  if (spec == "char" || spec == "byte" || spec.starts_with("bpe:"))
    return;  // what was learned from the text is in the checkpoint
  const std::unique_ptr<Tokenizer> named = make_tokenizer(spec, {});
  if (named->to_json() == saved) return;
  if (is_extension(*tokenizer_from_json(saved, "the tokenizer of the checkpoint"), *named)) return;
  throw Error(ExitCode::checkpoint,
              fmt::format("data.tokenizer: {} is not the tokenizer of the checkpoint: set it back to what the run "
                          "began with, or choose another output_dir for a new run",
                          spec));
}

}  // namespace gpt::tokenizer
