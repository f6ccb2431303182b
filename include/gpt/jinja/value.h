// What the variables of a template hold: Python's values, as far as templates of chats use them. Lists and mappings are never changed once
// they are made, so that values share them; a namespace alone can be assigned to.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gpt::jinja {

class Value;
class Runtime;

// What goes wrong within a template: render() says where.
struct Failure {
  std::string why;
};

struct Undefined {
  std::string why;  // "'name' is undefined"
};

struct None {};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;      // of lists and mappings within one another
  size_t weight = 1;  // how much there is to go through: bytes and values
};

// In the order in which the keys came.
struct Mapping {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  size_t weight = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

// A thing with attributes: a namespace, or the `loop` of a loop.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(std::string_view name) const = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Macros, methods that are bound to their value, and what every template can call.
class Function {
 public:
  virtual ~Function() = default;
  virtual Value call(Runtime& runtime, Arguments arguments) const = 0;
};

class Value {
 public:
  Value() = default;  // undefined
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(None) : data_(None{}) {}
  Value(std::same_as<bool> auto truth) : data_(truth) {}
  Value(int64_t number) : data_(number) {}
  Value(double number) : data_(number) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  Value(std::shared_ptr<const Function> function) : data_(std::move(function)) {}
  // Both throw Failure where that would be nested too deeply, or hold a namespace or a function: those could hold themselves.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value mapping(std::vector<std::pair<Value, Value>> entries);  // no two with the same key

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* text() const { return pointer<const std::string>(); }
  const List* list() const { return pointer<const List>(); }
  const Mapping* mapping() const { return pointer<const Mapping>(); }
  Object* object() const { return pointer<Object>(); }
  const Function* function() const { return pointer<const Function>(); }
  const char* type_name() const;  // as Python calls it
  size_t weight() const;

 private:
  template <class T>
  T* pointer() const {
    const auto* const held = std::get_if<std::shared_ptr<T>>(&data_);
    return held ? held->get() : nullptr;
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<const List>,
               std::shared_ptr<const Mapping>, std::shared_ptr<Object>, std::shared_ptr<const Function>>
      data_;
};

bool equal(const Value& a, const Value& b);             // as == has it: 1 is 1.0 and True
std::optional<int64_t> as_integer(const Value& value);  // True is 1
std::optional<double> as_number(const Value& value);

// Throws TemplateError for numbers that 64 bits do not hold.
Value from_json(const nlohmann::ordered_json& json);

}  // namespace gpt::jinja
