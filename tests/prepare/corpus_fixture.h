// A folder of files to load a corpus from, with a cache of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/prepare/load_corpus.h"

namespace gpt::prepare {

class CorpusTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) const { return folder_.file(name, bytes); }
  DataConfig text(const std::string& path) const {
    DataConfig config;
    config.text = path;
    config.cache_dir = folder_ / "cache";
    return config;
  }
  DataConfig bin(const std::string& bytes, const std::string& metadata) const {
    DataConfig config;
    config.bin = file("x.bin", bytes);
    if (!metadata.empty()) config.metadata = file("x.json", metadata);
    return config;
  }

  ScratchFolder folder_;
};

inline std::string decoded(const data::Corpus& corpus, const data::Tokens& tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens.size(); ++i) ids.push_back(tokens[i]);
  return corpus.tokenizer->decode(ids);
}

inline std::string uint16_ids(int begin, int end) {
  std::string bytes;
  for (int i = begin; i < end; ++i) bytes += {static_cast<char>(i & 255), static_cast<char>(i >> 8)};
  return bytes;
}

}  // namespace gpt::prepare
