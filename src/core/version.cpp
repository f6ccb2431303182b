#include "gpt/core/version.h"

#include <string_view>

#include "build_info.h"  // generated, see cmake/BuildInfo.cmake

namespace gpt {

std::string commit_id() { return GPT_COMMIT; }

std::string version_text(std::string_view program) {
  constexpr std::string_view cuda = GPT_CUDA_VERSION;
  return std::string(program) + " " GPT_VERSION " (commit " GPT_COMMIT ")\nLibTorch " GPT_TORCH_VERSION "\n" +
         (cuda.empty() ? "CUDA not built" : "CUDA " + std::string(cuda));
}

}  // namespace gpt
