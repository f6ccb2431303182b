// A folder of files to load a corpus from, with a cache of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gpt/data/corpus.h"

namespace gpt {

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("corpus_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  DataConfig text(const std::string& path) const {
    DataConfig config;
    config.text = path;
    config.cache_dir = (folder_ / "cache").string();
    return config;
  }
  DataConfig bin(const std::string& bytes, const std::string& metadata) const {
    DataConfig config;
    config.bin = file("x.bin", bytes);
    if (!metadata.empty()) config.metadata = file("x.json", metadata);
    return config;
  }

  std::filesystem::path folder_;
};

inline std::string decoded(const Corpus& corpus, const Tokens& tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens.size(); ++i) ids.push_back(tokens[i]);
  return corpus.tokenizer->decode(ids);
}

inline std::string uint16_ids(int begin, int end) {
  std::string bytes;
  for (int i = begin; i < end; ++i) bytes += {static_cast<char>(i & 255), static_cast<char>(i >> 8)};
  return bytes;
}

}  // namespace gpt
