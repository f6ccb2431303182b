// The logits of a model for fixed ids, for e2e/test_export.py. usage: write_logits CHECKPOINT|FOLDER OUTPUT.safetensors
#include <ATen/ops/arange.h>

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/safetensors.h"
#include "gpt/exchange/weights.h"
#include "gpt/model/gpt.h"

namespace {

gpt::GPT read(const std::string& path) {
  using namespace gpt;
  if (!exchange::is_hugging_face(path)) {
    const Checkpoint checkpoint = load_checkpoint(checkpoint_file(path));
    return {checkpoint.config.model, at::kCPU, checkpoint.model};
  }
  const exchange::ForeignModel foreign = exchange::read_foreign_model(path);
  return {foreign.model, at::kCPU, exchange::read_weights(path, foreign.model, foreign.family)};
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

int main(int, char** argv) try {
  gpt::GPT model = read(argv[1]);
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
