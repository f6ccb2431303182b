#include "gpt/serve/api_error.h"

#include <nlohmann/json.hpp>

namespace gpt::serve {

std::string ApiError::json() const {
  using nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? ordered_json() : ordered_json(text); };
  const char* const type = status_ == 429   ? "rate_limit_error"
                           : status_ >= 500 ? "server_error"
                                            : "invalid_request_error";
  const ordered_json object = {
      {"error", {{"message", what()}, {"type", type}, {"param", or_null(param_)}, {"code", or_null(code_)}}}};
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace gpt::serve
