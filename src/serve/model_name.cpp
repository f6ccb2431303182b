#include "gpt/serve/model_name.h"

#include <filesystem>

#include "gpt/checkpoint/file_names.h"

namespace gpt::serve {

std::string model_name(const std::string& checkpoint) {
  std::filesystem::path path = std::filesystem::absolute(checkpoint).lexically_normal();
  if (path.filename().empty() || path.filename() == checkpoint::kLastCheckpoint)
    path = path.parent_path();  // gpt2/ is gpt2
  const bool is_file =
      !std::filesystem::is_directory(path) && (path.extension() == ".pt" || path.extension() == ".safetensors");
  const std::string name = is_file ? path.stem() : path.filename();
  return name.empty() ? "model" : name;
}

}  // namespace gpt::serve
