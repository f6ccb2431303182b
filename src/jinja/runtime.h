// What one rendering is in the middle of: its variables, what it has taken of its limits, and its output.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/jinja/rendering.h"

namespace gpt::jinja {

// Names within a block, which sees those around it. An inner one ends before the outer one does.
struct Scope {
  const Scope* outer = nullptr;
  Variables variables = {};

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

class Runtime {
 public:
  Runtime(std::optional<std::time_t> now, const Limits& limits) : now(now), limits_(limits), work_left_(limits.work) {}

  // Throws Failure once the limit is reached. `size`: bytes, or values, that are read or made.
  void charge(size_t size);

  // How much is evaluated within one another.
  struct Depth {
    explicit Depth(Runtime& runtime);
    ~Depth() { --runtime.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Runtime& runtime;
  };

  void write(std::string_view text);
  const std::string& output() const { return output_; }

  // What is written while one exists becomes the text of a value.
  class Capture {
   public:
    explicit Capture(Runtime& runtime) : runtime_(runtime), outer_(std::move(runtime.output_)) {
      runtime_.output_.clear(), ++runtime_.captures_;
    }
    ~Capture() { runtime_.output_ = std::move(outer_), --runtime_.captures_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    std::string take() { return std::move(runtime_.output_); }

   private:
    Runtime& runtime_;
    std::string outer_;
  };
  bool is_captured() const { return captures_ > 0; }

  const std::optional<std::time_t> now;
  std::vector<Span> generated = {};

 private:
  const Limits limits_;
  int64_t work_left_;
  int depth_ = 0, captures_ = 0;
  std::string output_;
};

}  // namespace gpt::jinja
