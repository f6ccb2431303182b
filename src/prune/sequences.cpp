#include "gpt/prune/sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/prepare/load_corpus.h"

namespace gpt::prune {
namespace {

data::Corpus corpus_of(const std::string& data, const std::string& text_field,
                       const checkpoint::Checkpoint& checkpoint) {
  DataConfig config;
  config.text_field = text_field;
  config.validation_fraction = 0;
  (data::has_name_of_bin(data) ? config.bin : config.text) = data;
  if (config.bin.empty() && checkpoint.tokenizer.empty())
    fail(
        data,
        "the checkpoint has no tokenizer to encode a text with, because its run was given token ids; name ids of the same kind");
  const int64_t vocabulary = *checkpoint.config.model.vocab_size;
  data::Corpus corpus =
      prepare::load_corpus(config, /*block_size=*/1, checkpoint.tokenizer, vocabulary, checkpoint.text_format);
  if (corpus.vocab_size <= vocabulary) return corpus;
  fail(data,
       fmt::format(
           "its vocabulary has {} and the model's only {}; name the text itself, or ids of the checkpoint's tokenizer",
           plural(corpus.vocab_size, "token"), with_commas(vocabulary)));
}

}  // namespace

batches::Batch sequences_of(const std::string& data, const std::string& text_field,
                            const checkpoint::Checkpoint& checkpoint, at::Device device, int64_t most) {
  const data::Corpus corpus = corpus_of(data, text_field, checkpoint);
  const int64_t length = checkpoint.config.model.block_size;
  const batches::SplitWindows windows(corpus.train, length, at::kCPU, /*packs=*/device.is_cpu());
  if (windows.size() < 1) {
    fail(data, fmt::format("it has {}, and one sequence of the model takes {} (block_size + 1); name a longer text",
                           plural(corpus.train.size(), "token"), with_commas(length + 1)));
  }
  const int64_t count = std::min(most, windows.size());
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(i * windows.size() / count);
  return windows.batch(chosen);
}

}  // namespace gpt::prune
