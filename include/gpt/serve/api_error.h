// A request that is answered with an error, as clients of OpenAI's API expect it:
// {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace gpt::serve {

class ApiError : public std::runtime_error {
 public:
  // `param`: the field that is at fault; `code`: a name for programs. Empty where there is none.
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : std::runtime_error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}
  int status() const { return status_; }
  std::string json() const;

 private:
  int status_;
  std::string param_, code_;
};

}  // namespace gpt::serve
