// All that a tokenizer.json says about encoding and decoding.
#pragma once

#include <string>
#include <vector>

#include "added_tokens.h"
#include "character_bpe.h"
#include "gpt/tokenizer/bpe_model.h"
#include "text_change.h"
#include "text_splitter.h"
#include "token_decoder.h"

namespace gpt::tokenizer {

struct TokenizerPipeline {
  BpeModel model;  // its special tokens are all added tokens
  std::vector<AddedToken> added_tokens;
  std::vector<TextChange> changes;
  std::vector<TextSplitter> splitters;

  bool is_byte_level = true;     // the model's tokens are bytes; otherwise characters, with the options below
  bool splits_as_model = false;  // model.split is the last splitter
  bool is_spelled = false;       // pieces come in GPT-2's printable alphabet
  CharacterBpeOptions characters;
  TokenDecoder decoder;  // of characters

  bool keeps_start = true;         // changes neither take away nor put anything before the start of a text
  bool only_unicode_forms = true;  // changes are NFC and its like
  bool prefixes_space = false;     // before each piece that begins with none
  bool may_be_cut = false;         // where the model's split certainly ends a piece, so do all splitters
  bool adds_tokens = false;        // a post-processor adds some around a text

  // Whether the model with its split is all there is to encoding and decoding.
  bool is_plain() const;
};

}  // namespace gpt::tokenizer
