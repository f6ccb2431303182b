// README.md of an exported model: what it is, what it was trained on and how well it did, for whoever is given the folder.
#pragma once

#include <string>
#include <string_view>

#include "gpt/checkpoint/state.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::exchange {

std::string last_name(const std::string& path);  // what a published file says of a path

// `path` is the checkpoint's: the losses beside it are those of metrics.jsonl. Paths are cut to their last names, since the card may be
// published. `dtype` is that of the weights.
// `tokenizer` is the checkpoint's, or null where it has none.
std::string model_card(const checkpoint::Checkpoint& checkpoint, const std::string& path,
                       const tokenizer::Tokenizer* tokenizer, const Family& family, std::string_view dtype);

// The same of adapters.
std::string adapter_card(const checkpoint::Checkpoint& checkpoint, const std::string& path, const Family& family);

// Whether transformers' AutoTokenizer takes the tokenizer of such a model for what its file says.
bool is_known_to_auto_tokenizer(const tokenizer::Tokenizer& tokenizer, const Family& family);

// Whether a README.md is a card of ours, so that its folder may be written over.
bool is_model_card(std::string_view text);

}  // namespace gpt::exchange
