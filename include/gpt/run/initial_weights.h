// training.init_from: a new run that begins with the weights of a checkpoint, or of a model of Hugging Face's (exchange/import.h). Its
// tokenizer comes with them, since ids mean something to these weights only as it gives them, and so does the format of texts (gpt/tokenizer/
// text_format.h); nothing else does. Where the run asks for
// another tokenizer, their rows are matched with its tokens (match_vocabulary.h). Where the run has a checkpoint of its own, that one counts
// (folder.h).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "gpt/checkpoint/state.h"
#include "gpt/config/config.h"
#include "gpt/config/origins.h"
#include "gpt/data/corpus.h"
#include "gpt/parameters/named_tensors.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::run {

struct InitialWeights {
  std::string path;
  std::optional<int64_t> step;  // the step that the weights are of; nothing where another program made them
  parameters::NamedTensors model;
  std::string tokenizer;           // JSON; empty where the model has none
  int64_t vocab_size = 0;          // of the model
  bool changes_tokenizer = false;  // the run has another one, which load_corpus_for() matches the rows with
  std::optional<tokenizer::TextFormat> text_format = {};  // in the ids of its tokenizer
  std::optional<checkpoint::BaseModel> base = {};         // of a run that trains adapters: what its checkpoints name
  std::set<std::string> changed =
      {};  // weights that are not the base's any more, because the run fits them to its data
  parameters::FrozenMatrices frozen =
      {};  // what of `model` has been packed, as the run keeps it; zeros without memory stand there
};

// What of a model is known without its tensors.
struct ModelOfFile {
  ModelConfig model;
  double characters_per_token = 1;
  std::string tokenizer = {};  // JSON; empty where the model has none
};

// The model at `path`, a checkpoint or one of Hugging Face's, and its weights. Both throw gpt::Error(checkpoint) where it cannot be read.
ModelOfFile read_model(const std::string& path);
parameters::NamedTensors read_weights(const std::string& path, const ModelConfig& model);

// While a command line is completed: makes training.init_from absolute, and the model's sizes and form those of the checkpoint, but for
// dropout, a vocabulary that was written out and is larger, and, where data.tokenizer was written out and is another one, the vocabulary. About how many characters a token has. Throws gpt::Error: config naming the keys that were written out and
// contradict it; checkpoint where it cannot be read, unless output_dir holds a run, which does not need it any more.
double take_model(Config& config, const config::Origins& origins);

// What such a run takes of what training.init_from names. Throws gpt::Error(checkpoint) where that cannot be read.
InitialWeights read_initial_weights(const Config& config, const config::Origins& origins);
// The same of a checkpoint that has been read.
InitialWeights initial_weights(checkpoint::Checkpoint checkpoint, const Config& config, const config::Origins& origins);

// The corpus of `config`, in the ids of the checkpoint's tokenizer, or of another one, which the weights are then brought to. So they are to
// the tokens that a chat template has added, and model.vocab_size with them. Throws
// gpt::Error: data where the data have other ids, config where one of the two has no tokenizer to be matched by.
data::Corpus load_corpus_for(InitialWeights& initial, Config& config);
// The same without reading weights, for a measurement: as the model of training.init_from takes texts, where there is one.
data::Corpus load_corpus_to_measure(Config& config);

}  // namespace gpt::run
