// The logits of a model for fixed ids, for e2e/test_export.py. usage: write_logits CHECKPOINT|FOLDER OUTPUT.safetensors [TOKENIZER]
#include <ATen/ops/arange.h>

#include <cstdio>
#include <span>

#include "gpt/exchange/safetensors.h"
#include "gpt/generate/loaded_model.h"

namespace {

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

int main(int argc, char** argv) try {
  gpt::generate::ModelOptions options;
  options.checkpoint = gpt::generate::find_model(argv[1]);
  options.device = "cpu";
  if (argc > 3) options.tokenizer = argv[3];  // of a model that comes without one
  options.dtype = {gpt::Dtype::float32};
  const gpt::generate::LoadedModel loaded = gpt::generate::load_model(options);
  const gpt::model::GPT& model = *loaded.model;
  const int64_t length = model.config().block_size;
  const at::Tensor ids = (at::arange(3 * length, at::kLong) * 7919 % *model.config().vocab_size).reshape({3, length});
  const at::Tensor logits = model.forward(ids).detach().contiguous();
  gpt::exchange::SafetensorsWriter file(argv[2],
                                        {{"ids", "I64", ids.sizes().vec()}, {"logits", "F32", logits.sizes().vec()}});
  file.add(bytes_of(ids));
  file.add(bytes_of(logits));
  file.commit();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
