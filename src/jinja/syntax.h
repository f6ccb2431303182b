// What a template says, as a tree: expressions have a value, statements do something.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "filters.h"
#include "gpt/jinja/value.h"
#include "runtime.h"

namespace gpt::jinja {

class Expression {
 public:
  virtual ~Expression() = default;
  // Counted as a step. Throws TemplateError with the line.
  Value value(const Scope& scope, Runtime& runtime) const;
  int line = 1;

 private:
  virtual Value compute_value(const Scope& scope, Runtime& runtime) const = 0;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class Flow { on, next_round, leaves_loop };

class Statement {
 public:
  virtual ~Statement() = default;
  Flow run(Scope& scope, Runtime& runtime) const;  // likewise
  int line = 1;

 private:
  virtual Flow carry_out(Scope& scope, Runtime& runtime) const = 0;
};

class Statements {
 public:
  Flow run(Scope& scope, Runtime& runtime) const;
  std::vector<std::unique_ptr<const Statement>> all;
};

// Where a value goes: a name, several, or an attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  bool is_tuple = false;
  std::string attribute = {};  // of the namespace of the first name

  // Throws Failure.
  void assign(Scope& scope, const Value& value, Runtime& runtime) const;
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;

  Arguments values(const Scope& scope, Runtime& runtime) const;
};

struct Constant : Expression {
  explicit Constant(Value value) : constant(std::move(value)) {}
  Value compute_value(const Scope&, Runtime&) const override { return constant; }
  Value constant;
};

struct Name : Expression {
  explicit Name(std::string name) : name(std::move(name)) {}
  Value compute_value(const Scope& scope, Runtime&) const override;
  std::string name;
};

struct ListOf : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
};

struct MappingOf : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Attribute : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr of;
  std::string name;
};

struct Item : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr of, key;
};

struct Slice : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr of, start, stop, step;  // those that are left out are null
};

struct Call : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr function;
  CallArguments arguments;
};

struct Filtered : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr of;  // null: the text of a block
  std::string name;
  Filter filter = nullptr;  // or a test
  CallArguments arguments;

  Value apply(const Value& value, const Scope& scope, Runtime& runtime) const;
};

struct Negative : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr of;
  bool is_not = false;  // `not`, and otherwise `-` or `+`
  bool is_plus = false;
};

struct Calculation : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  std::string sign;
  ExpressionPtr left, right;
};

struct Concatenation : Expression {
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  std::vector<ExpressionPtr> parts;
};

struct Comparison : Expression {  // a < b < c
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> others;
};

struct Junction : Expression {  // and, or
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  bool is_and = false;
  ExpressionPtr left, right;
};

struct Conditional : Expression {  // a if condition else b
  Value compute_value(const Scope& scope, Runtime& runtime) const override;
  ExpressionPtr condition, then, otherwise;  // the last may be null
};

struct Text : Statement {
  explicit Text(std::string text) : text(std::move(text)) {}
  Flow carry_out(Scope&, Runtime& runtime) const override;
  std::string text;
};

struct Output : Statement {
  Flow carry_out(Scope& scope, Runtime& runtime) const override;
  ExpressionPtr what;
};

struct If : Statement {
  Flow carry_out(Scope& scope, Runtime& runtime) const override;
  std::vector<std::pair<ExpressionPtr, Statements>> branches;
  Statements otherwise;
};

struct For : Statement {
  Flow carry_out(Scope& scope, Runtime& runtime) const override;
  std::vector<Value> chosen_items(const Scope& scope, Runtime& runtime) const;
  Target target;
  ExpressionPtr sequence, condition;  // the condition may be null
  Statements body, otherwise;
};

struct Set : Statement {
  Flow carry_out(Scope& scope, Runtime& runtime) const override;
  Target target;
  ExpressionPtr what;  // null: the text of the body
  Statements body;
  std::vector<std::unique_ptr<const Filtered>> filters;  // of that text
};

struct Macro : Statement {
  Flow carry_out(Scope& scope, Runtime& runtime) const override;
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with what they are otherwise, or null
  Statements body;
};

struct Leave : Statement {  // break, continue
  explicit Leave(Flow flow) : flow(flow) {}
  Flow carry_out(Scope&, Runtime&) const override { return flow; }
  Flow flow;
};

struct Generation : Statement {
  Flow carry_out(Scope& scope, Runtime& runtime) const override;
  Statements body;
};

}  // namespace gpt::jinja
