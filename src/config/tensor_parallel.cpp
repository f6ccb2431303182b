#include "gpt/config/tensor_parallel.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "gpt/core/format.h"

namespace gpt::config {
namespace {

std::string uneven(const char* key, int64_t value, int64_t parts) {
  if (value % parts == 0) return "";
  return fmt::format("model.{} is {}, which tensor_parallel {} cannot divide evenly; the nearest that it can is {}",
                     key, value, parts, nearest_multiples(value, parts));
}

std::string obstacle_of_model(const ModelConfig& model, int64_t parts) {
  for (const auto& [key, value] : {std::pair{"n_head", model.heads()}, std::pair{"n_kv_head", model.kv_heads()},
                                   std::pair{"n_hidden", model.hidden()}})
    if (std::string why = uneven(key, value, parts); !why.empty()) return why;
  if (!model.vocab_size || model.padded_vocab() >= parts) return "";
  return fmt::format("tensor_parallel {} is more than the {} rows of the vocabulary; set it to {} or less", parts,
                     model.padded_vocab(), model.padded_vocab());
}

}  // namespace

std::string tensor_parallel_obstacle(const Config& config) {
  const int64_t parts = config.distributed.tensor_parallel, processes = config.distributed.processes;
  const TrainingConfig& training = config.training;
  if (parts == 1) return "";
  if (processes > 1 && processes % parts != 0) {
    return fmt::format("tensor_parallel {} does not divide {} processes; set processes to {}", parts, processes,
                       nearest_multiples(processes, parts));
  }
  if (!training.execution.use_compile)
    return "tensor_parallel needs use_compile's operators, whose dropout masks are those of the whole model; set tensor_parallel to "
           "1, or use_compile to true";
  if (!training.distillation.from.empty())
    return fmt::format(
        "distill_from needs all logits of a token, and tensor_parallel {} gives each process a part of them; set "
        "tensor_parallel to 1, or leave distill_from out",
        parts);
  if (training.optimizer.has_muon())
    return fmt::format(
        "Muon needs whole matrices, and tensor_parallel {} gives each process a part of them; set tensor_parallel to 1, or optimizer "
        "to adamw",
        parts);
  return obstacle_of_model(config.model, parts);
}

}  // namespace gpt::config
