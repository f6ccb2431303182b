#include "foreign_adapters.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "gpt/checkpoint/adapters.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/weights.h"
#include "gpt/layout/tuning.h"

namespace gpt::exchange {
namespace {

// Nothing where none of them is within the matrix.
std::optional<ForeignAdapter> joined(const Counterpart& part, const std::vector<checkpoint::ProductAdapter>& adapters,
                                     double scale) {
  std::vector<checkpoint::ProductAdapter> within;
  int64_t rank = 0;
  for (const checkpoint::ProductAdapter& one : adapters) {
    if (one.outputs.begin < part.begin || one.outputs.begin >= part.begin + part.size) continue;
    within.push_back(one);
    rank += one.a.size(0);
  }
  if (within.empty()) return std::nullopt;
  const at::Tensor a = at::zeros({rank, within[0].a.size(1)}), b = at::zeros({part.size, rank});
  int64_t done = 0;
  for (const auto& [outputs, of_a, of_b] : within) {
    const int64_t own = of_a.size(0);
    a.narrow(0, done, own).copy_(of_a);
    b.narrow(0, outputs.begin - part.begin, outputs.length).narrow(1, done, own).copy_(of_b);
    done += own;
  }
  return ForeignAdapter{part, a, b, scale * static_cast<double>(rank)};
}

}  // namespace

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::vector<ForeignAdapter> foreign_adapters(const checkpoint::Checkpoint& checkpoint, const Family& family) {
  const ModelConfig& model = checkpoint.config.model;
  const std::map<std::string, at::Tensor> values(checkpoint.model.begin(), checkpoint.model.end());
  const std::vector<layout::ParameterRow> rows =
      layout::adapter_rows(layout::parameter_table(model, checkpoint.config.training.tuning));
  std::vector<ForeignAdapter> found;
  for (const Counterpart& part : family.counterparts(model)) {
    const std::string weight = part.row.substr(0, part.row.rfind('.'));
    const auto row = std::ranges::find(rows, weight + ".lora_A", &layout::ParameterRow::name);
    if (row == rows.end() || part.shape.size() < 2) continue;
    const auto adapters =
        checkpoint::product_adapters(*row->adapter, values.at(row->name), values.at(weight + ".lora_B"));
    if (auto one = joined(part, adapters, row->adapter->scale)) found.push_back(std::move(*one));
  }
  return found;
}

std::map<std::string, at::Tensor> modules_trained_whole(const checkpoint::Checkpoint& checkpoint,
                                                        const Family& family) {
  const ModelConfig& model = checkpoint.config.model;
  std::set<std::string> trained, modules;
  for (const layout::ParameterRow& row : layout::parameter_table(model, checkpoint.config.training.tuning))
    if (layout::is_trained_whole(row)) trained.insert(row.name);
  std::map<std::string, at::Tensor> found = to_hugging_face(model, family, checkpoint.model);
  for (const Counterpart& part : counterparts(model, family)) {
    if (!trained.contains(part.row)) continue;
    modules.insert(module_of(part.name));
    if (!model.tie_weights || part.row != kEmbedding) continue;
    found[kHead] = found.at(part.name);
    modules.insert(module_of(kHead));
  }
  std::erase_if(found, [&modules](const auto& tensor) { return !modules.contains(module_of(tensor.first)); });
  return found;
}

}  // namespace gpt::exchange
