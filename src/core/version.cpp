#include "gpt/core/version.h"

#include "build_info.h"  // generated, see cmake/BuildInfo.cmake

namespace gpt {

std::string commit_id() { return GPT_COMMIT; }

std::string version_text() {
  const std::string cuda = GPT_CUDA_VERSION;
  return "gpt-train " GPT_VERSION " (commit " GPT_COMMIT ")\nLibTorch " GPT_TORCH_VERSION "\n" +
         (cuda.empty() ? "CUDA not built" : "CUDA " + cuda);
}

}  // namespace gpt
