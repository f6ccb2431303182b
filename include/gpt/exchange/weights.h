// Weights from our form into Hugging Face's and back: tensors by name, in model.safetensors or in several such files with an index.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/safetensors.h"
#include "gpt/parameters/frozen_matrix.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::exchange {

bool is_finite(const at::Tensor& tensor);  // all values

// Hugging Face's tensors by name, as views of ours where that is possible: [in, out] matrices are not contiguous. Padding rows of the
// vocabulary are left out. `weights` are those of the model's parameter table.
std::map<std::string, at::Tensor> to_hugging_face(const ModelConfig& model, const Family& family,
                                                  const parameters::NamedTensors& weights);

// A complete file, which takes its name with commit(). `type`: kFloat, kBFloat16 or kHalf. Throws gpt::Error: disk, or numerics where a
// value is not finite in that type.
std::unique_ptr<SafetensorsWriter> written_weights(const std::string& path,
                                                   const std::map<std::string, at::Tensor>& tensors,
                                                   at::ScalarType type);

// The same in a folder: model.safetensors, or where that would have more than `most_bytes` of weights, files of at most so many, except
// that a larger tensor has one of its own, and model.safetensors.index.json, which says where each is.
class WeightsInFolder {
 public:
  WeightsInFolder(std::string folder, const std::map<std::string, at::Tensor>& tensors, at::ScalarType type,
                  double most_bytes);
  void commit();  // all files take their names; weights of an older export that have other names are removed

 private:
  std::string folder_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
  std::unique_ptr<AtomicFile> index_;  // where there are several
};

// All tensors of a file, as float32. Throws gpt::Error(checkpoint) where one is not finite or of another type than F32, F16 or BF16.
std::map<std::string, at::Tensor> read_tensors(const std::string& path);

// The weights of a file FILE.safetensors or of a folder with model.safetensors or model.safetensors.index.json, as float32 and in the order
// of the parameter table; padding rows of the vocabulary are zero. Throws gpt::Error(checkpoint) naming the first tensor that is missing,
// misshapen, not finite, of another type than F32, F16 or BF16, or that the model does not have. Of a folder of peft the model's, with its
// adapters added. `packer`, if it is not null, packs rows as soon as each is read.
parameters::NamedTensors read_weights(const std::string& path, const ModelConfig& model, const Family& family,
                                      parameters::RowPacker* packer = nullptr);
// The files that it reads weights from.
std::vector<std::string> weight_files(const std::string& path);

}  // namespace gpt::exchange
