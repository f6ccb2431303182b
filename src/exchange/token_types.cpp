#include "token_types.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::exchange {

void refuse_tokenizer(const std::string& origin, const std::string& why) {
  throw Error(ExitCode::checkpoint,
              fmt::format("{}: llama.cpp cannot have the same tokenizer: {}; use --format huggingface", origin, why));
}

void require_found_anywhere(const nlohmann::json& token, const std::string& origin) {
  for (const char* flag : {"single_word", "lstrip", "rstrip"})
    if (token.value(flag, false))
      refuse_tokenizer(origin, fmt::format("its token '{}' takes what is beside it into account",
                                           printable_line(token["content"].get<std::string>())));
}

}  // namespace gpt::exchange
