// What is in a checkpoint whose hashes are right: records, each with its name, NUL, its content, NUL, which take the place of
// those of a checkpoint that is right. A record without a content is left out.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "expect.h"
#include "folder.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "tests/container/records.h"

namespace {

using namespace gpt;

using test::Records;

checkpoint::Checkpoint small_checkpoint() {
  checkpoint::Checkpoint checkpoint;
  ModelConfig& model = checkpoint.config.model;
  model.n_layer = 1, model.n_head = 1, model.n_embd = 2, model.n_hidden = 2, model.block_size = 4;
  model.vocab_size = 3, model.vocab_multiple = 1;
  for (const layout::ParameterRow& parameter : layout::parameter_table(model)) {
    checkpoint.model.emplace_back(parameter.name, at::ones(parameter.shape));
    for (const char* slot : {"exp_avg", "exp_avg_sq"})
      checkpoint.optimizer.slot(slot).emplace_back(parameter.name, at::zeros(parameter.shape));
  }
  checkpoint.step = 7, checkpoint.skipped_steps = 2, checkpoint.evaluated_step = 5, checkpoint.best_val_loss = 1.5;
  checkpoint.optimizer.step_count = at::scalar_tensor(5, at::kFloat);
  checkpoint.rng = {{"cpu", at::detail::createCPUGenerator(1).get_state()}};
  checkpoint.tokenizer = tokenizer::make_tokenizer("char", "abc")->to_json();
  checkpoint.data_fingerprint = "0123";
  checkpoint.environment = {{"device", "cpu"}};
  return checkpoint;
}

Records replaced(Records records, std::string_view input) {
  while (!input.empty()) {
    const std::string name(fuzz::next_part(input)), content(fuzz::next_part(input));
    std::erase_if(records, [&](const auto& record) { return record.first == name; });
    if (!content.empty()) records.emplace_back(name, content);
  }
  return records;
}

// False where there cannot be such a name.
bool write(const std::string& path, const Records& records) {
  try {
    test::write_records(path, records);
  } catch (const std::invalid_argument&) { return false; }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  static const std::string path = folder / "ckpt.pt", saved = folder / "saved.pt", again = folder / "again.pt";
  static const Records small = (checkpoint::save_checkpoint(saved, small_checkpoint()), test::records_of(saved));
  if (!write(path, replaced(small, {reinterpret_cast<const char*>(data), size}))) return 0;
  checkpoint::Checkpoint checkpoint;
  if (!fuzz::accept_or_refuse([&] { checkpoint = checkpoint::load_checkpoint(path); }, ExitCode::checkpoint)) return 0;
  checkpoint::save_checkpoint(saved, checkpoint);
  checkpoint::save_checkpoint(again, checkpoint::load_checkpoint(saved));
  fuzz::expect(fuzz::content_of(again) == fuzz::content_of(saved), "the same checkpoint again");
  fuzz::expect(checkpoint::python_view_of(again, checkpoint) == checkpoint::PythonView::ours, "the same for Python");
  return 0;
}
