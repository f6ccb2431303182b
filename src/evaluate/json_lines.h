// The lines of a file of JSON, one at a time, with their places.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace gpt::evaluate {

class JsonLines {
 public:
  explicit JsonLines(const std::string& path);  // throws gpt::Error(data)

  // The next one that is not empty; nothing at the end. Throws gpt::Error(data) with the place of one that is not JSON.
  std::optional<nlohmann::json> next();
  std::string place() const;  // "FILE: line 3", of the one that came last
  double share() const;       // of the file that has been read, from 0 to 1

 private:
  const std::string path_, text_;
  size_t begin_ = 0;
  int64_t line_ = 0;
};

}  // namespace gpt::evaluate
