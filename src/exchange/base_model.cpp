// What checkpoints name as the base of their adapters, where another program made it.
#include "gpt/checkpoint/base.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/weights.h"

namespace gpt::checkpoint {

bool is_foreign_base(const std::string& path) { return exchange::is_hugging_face(path); }

std::vector<std::string> files_of_foreign_base(const std::string& path) { return exchange::weight_files(path); }

parameters::NamedTensors read_foreign_base(const std::string& path, const ModelConfig& padded,
                                           parameters::RowPacker& packer) {
  exchange::ForeignModel foreign = exchange::read_foreign_model(path);
  foreign.model.vocab_multiple = padded.vocab_multiple;
  return exchange::read_weights(path, foreign.model, *foreign.family, &packer);
}

}  // namespace gpt::checkpoint
