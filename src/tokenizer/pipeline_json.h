// The parts of a tokenizer.json that say what happens to a text before and after its pieces become tokens.
#pragma once

#include "json_node.h"
#include "tokenizer_pipeline.h"

namespace gpt::tokenizer {

// Fill the pipeline from the file's member of that name. Throw gpt::Error(data), which names the member, for what is
// malformed or not supported. The pre-tokenizer decides whether the model is one of bytes, which the decoder must fit.
void read_normalizer(const JsonNode& normalizer, TokenizerPipeline& pipeline);
void read_pre_tokenizer(const JsonNode& pre_tokenizer, TokenizerPipeline& pipeline);
void read_post_processor(const JsonNode& processor, TokenizerPipeline& pipeline);
void read_decoder(const JsonNode& decoder, TokenizerPipeline& pipeline);

}  // namespace gpt::tokenizer
