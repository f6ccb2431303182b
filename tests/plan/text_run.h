// A small model and a text of its own, for the tests that take steps.
#pragma once

#include <fstream>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/config/config.h"
#include "gpt/prepare/load_corpus.h"

namespace gpt::plan {

class TextRun {
 protected:
  TextRun() {
    const std::string text = folder_.path() + "/text.txt";
    std::ofstream out(text);
    for (int i = 0; i < 2000; ++i) out << "line " << i << "\n";
    out.close();
    config_.data.text = text;
    config_.data.cache_dir = folder_.path() + "/cache";
    config_.model.n_layer = 2, config_.model.n_head = 2, config_.model.n_embd = 32, config_.model.block_size = 32;
    config_.model.dropout = 0;
    corpus_ = prepare::load_corpus(config_.data, config_.model.block_size);
    config_.model.vocab_size = corpus_.vocab_size;
  }

  ScratchFolder folder_;
  Config config_;
  data::Corpus corpus_;
};

}  // namespace gpt::plan
