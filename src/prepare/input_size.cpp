#include "gpt/prepare/input_size.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "gpt/core/installed_data.h"
#include "source_list.h"

namespace gpt {
namespace {

int64_t file_bytes(const std::string& path) {
  std::error_code none;
  const auto bytes = std::filesystem::file_size(path, none);
  return none ? 0 : static_cast<int64_t>(bytes);
}

}  // namespace

int64_t estimate_characters(const DataConfig& config) {
  constexpr int64_t kPacked = 4, kPerTokenByte = 2;  // ids take two bytes or more
  if (!config.bin.empty()) return kPerTokenByte * (file_bytes(config.bin) + file_bytes(config.validation_bin));
  if (config.dataset == DatasetName::shakespeare) return file_bytes(installed_data("shakespeare.txt"));
  if (config.text.empty()) return 0;
  int64_t characters = 0;
  for (const Source& source : find_sources({config.text}, "").sources) {
    characters += source.bytes * (source.packing == Packing::none ? 1 : kPacked);
  }
  return config.max_chars > 0 ? std::min(characters, config.max_chars) : characters;
}

}  // namespace gpt
