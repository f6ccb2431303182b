// Checks the text of a configuration against its batches and the length of its run.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/batches/data_loader.h"
#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/plan/check.h"
#include "gpt/run/plan.h"

namespace gpt::plan {

// What to do where the data could not be read; the message has said why.
std::string data_fix(const DataConfig& data);

struct DatasetFacts {
  std::string source;      // path
  int64_t file_bytes = 0;  // 0: not one file
  int64_t train_tokens = 0, validation_tokens = 0;
  int64_t samples_per_epoch = 0;  // sequences of block_size tokens
  bool resident = false;          // on the training device
  bool are_learned = false;       // tokens of several characters; false where the data do not tell
};

DatasetFacts describe_data(const data::Corpus& corpus, const batches::DataLoader& loader);

// The configuration with the batch_size that batches really have: an epoch of fewer samples is one batch.
TrainingConfig with_real_batch(TrainingConfig training, const DatasetFacts& facts);

Check check_dataset(const DataConfig& data, int64_t block_size, const DatasetFacts& facts);

// load_corpus() has found every id in the vocabulary, and sizes and hashes as in the metadata: reports what it checked.
Check check_tokens(const data::Corpus& corpus, int64_t vocab_size);  // vocab_size: of the model
// Whether documents can be told apart for data.document_mask, which is on, and whether there are any.
Check check_documents(const DataConfig& data, const data::Corpus& corpus);
// Whether validation tokens occur in training too, whatever the size of the data.
Check check_overlap(const data::Corpus& corpus);

// Whether the tokenizer has every character that samples begin with; a run that writes none passes.
Check check_sample_prompt(const CadenceConfig& cadence, const data::Corpus& corpus);

Check check_batch(const TrainingConfig& training, const DatasetFacts& facts);
Check check_validation(const UpdateConfig& config, const DatasetFacts& facts, const run::Plan& plan);
// How many workers a run has: data.num_workers, or where that is auto, what suits the device and so many cores.
int64_t workers_for(const DataConfig& data, bool cuda, int64_t cores);
Check check_workers(const DataConfig& data, bool resident, bool cuda, int64_t cores);

// Tokens and steps per epoch, and how often the run reads its text: whether the model will memorize it. With
// model.vocab_size unset the size of the model is not considered.
Check check_length(const UpdateConfig& config, const DatasetFacts& facts, const run::Plan& plan);
Check check_learning_rate(const TrainingConfig& training, const run::Plan& plan);

}  // namespace gpt::plan
