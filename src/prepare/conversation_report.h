// What people are told of conversations when they are loaded.
#pragma once

#include <string>

#include "gpt/data/corpus.h"
#include "gpt/data/metadata.h"

namespace gpt::prepare {

// "2 conversations ('messages') with 6 turns: 3 answers are learned, 40 of 90 tokens; left out: 1 without an answer"
std::string describe_conversations(const data::Metadata& metadata);

// The first conversation, with what is not learned in brackets, in a line of at most 200 characters.
std::string show_first_conversation(const data::Corpus& corpus);

// Both, in the log.
void report_conversations(const data::Corpus& corpus, const data::Metadata& metadata);

}  // namespace gpt::prepare
