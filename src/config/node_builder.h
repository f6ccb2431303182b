// Builds a Node from the events of a YAML parser.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/node.h"

namespace gpt::config {

class NodeBuilder {
 public:
  // What a configuration needs; hostile input nests no deeper.
  static constexpr size_t kMaxDepth = 3;

  bool is_open() const { return !open_.empty(); }
  bool is_full() const { return open_.size() == kMaxDepth; }
  // Whether the next value is taken for a key.
  bool wants_key() const { return is_open() && open_.back().node.kind == Node::Kind::map && !open_.back().key; }

  void begin(Node::Kind kind, std::string where) { open_.push_back({{.kind = kind, .where = std::move(where)}, {}}); }

  void scalar(Node node) {
    if (wants_key()) {
      open_.back().key = std::move(node);
    } else {
      add(std::move(node));
    }
  }

  // Ends the innermost list or map. The outermost one is then the result.
  void end() {
    Node node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  Node result;

 private:
  struct Open {
    Node node;
    std::optional<Node> key;  // in a map: the one whose value comes next
  };

  void add(Node node) {
    if (open_.empty()) {
      result = std::move(node);
    } else if (Open& outer = open_.back(); outer.node.kind == Node::Kind::list) {
      outer.node.items.push_back(std::move(node));
    } else {
      outer.node.entries.emplace_back(std::move(*outer.key), std::move(node));
      outer.key.reset();
    }
  }

  std::vector<Open> open_;  // outermost first
};

}  // namespace gpt::config
