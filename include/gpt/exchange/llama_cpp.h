// Our models and those of llama.cpp: which type each tensor has in a GGUF file, how its values lie there, and the keys that describe the
// model. The families are those of families.h. Matrices are [out, in], as ours.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/exchange/gguf.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::exchange {

struct LlamaCppTensor {
  GgufTensor stored;
  Counterpart part;       // the rows of ours that it is made of
  bool adds_row;          // a last row for a token that our model lacks
  at::Tensor fixed = {};  // instead of rows of ours: values that follow from the model's form
};

// All tensors of a file whose matrices are of this type, in the order of their names. As llama.cpp's own converter has it, learned
// positions, norms, biases and what RoPE's frequencies are divided by are f32 in every file, and of q8_0 a matrix whose rows cannot be divided into blocks is f16.
// `adds_token`: the vocabulary has one token more than the model.
std::vector<LlamaCppTensor> llama_cpp_tensors(const ModelConfig& model, const LlamaCppForm& form, GgufType type,
                                              bool adds_token);

// The values as float32, of the shape that is stored; a view of ours where that is possible. An added row is the mean of the others: as a
// row of the head it gives the mean of the others' logits, which is never the largest one. `weights` are those of the model's parameter
// table.
at::Tensor llama_cpp_values(const LlamaCppTensor& tensor, const parameters::NamedTensors& weights);

// Rows of ours, of a matrix or of the factor of one, in the order that they have there.
at::Tensor in_llama_cpp_order(const at::Tensor& rows, const Counterpart& part);

// The architecture's own keys.
void add_architecture(GgufMetadata& metadata, const ModelConfig& model, const Architecture& architecture,
                      int64_t tokens);

}  // namespace gpt::exchange
