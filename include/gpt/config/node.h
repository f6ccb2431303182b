// A value that is more than one word: lists and maps as they were written, each part with its place.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt::config {

struct Node {
  enum class Kind { scalar, list, map } kind = Kind::scalar;
  std::string text = {};  // the text of a scalar
  bool quoted = false;
  std::string where = {};                           // file:line:col
  std::vector<Node> items = {};                     // the items of a list
  std::vector<std::pair<Node, Node>> entries = {};  // the entries of a map: key and value, in their order
};

// A value in YAML, as a flag gives it. Throws gpt::Error(config).
Node parse_node(std::string_view yaml, const std::string& origin);

}  // namespace gpt::config
