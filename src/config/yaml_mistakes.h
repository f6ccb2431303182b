// The usual mistakes of YAML written by hand, found in its text: what a user reads instead of the parser's own words.
#pragma once

#include <yaml-cpp/exceptions.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::config {

struct Mistake {
  int line, column;  // from 0
  std::string what;  // with the repair
};

using Lines = std::vector<std::string_view>;
Lines lines_of(std::string_view text);  // without their ends, of Unix and of Windows

// What keeps a line from being 'key: value': a tab before it, a missing colon, a missing space. Nothing where it is one,
// or something else that YAML has.
std::optional<Mistake> mistake_in(const Lines& lines, int line);

// Why the line after `line`, which began a plain value, went on with it.
Mistake mistake_after(const Lines& lines, int line);

// Why yaml-cpp gave up.
Mistake mistake_of(const Lines& lines, const YAML::Exception& fault);

}  // namespace gpt::config
