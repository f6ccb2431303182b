// What the backward pass of an operator needs besides tensors that autograd knows: a value of any type, kept with its node.
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

namespace gpt::ops {

template <class Value>
struct Kept : torch::CustomClassHolder {
  explicit Kept(Value value) : value(std::move(value)) {}
  Value value;
};

template <class Value>
void keep(torch::autograd::AutogradContext& context, Value value) {
  context.saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<Kept<Value>>(std::move(value)));
}

// What keep<Value>() was given. It lives as long as the context.
template <class Value>
const Value& kept(torch::autograd::AutogradContext& context) {
  return static_cast<const Kept<Value>&>(*context.saved_data["kept"].toCapsule()).value;
}

}  // namespace gpt::ops
