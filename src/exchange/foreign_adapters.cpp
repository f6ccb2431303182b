#include "foreign_adapters.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "gpt/layout/tuning.h"

namespace gpt::exchange {
namespace {

// One of the products that a row of A and B stands for.
struct OwnAdapter {
  RowCut::Piece outputs;  // of the weight
  at::Tensor a, b;        // (rank, in), (outputs, rank)
};

std::vector<OwnAdapter> own_adapters(const AdapterPart& part, const at::Tensor& a, const at::Tensor& b) {
  std::vector<OwnAdapter> adapters;
  const int64_t rank = b.size(1);
  int64_t of_a = 0, of_b = 0;
  for (const RowCut::Piece& outputs : part.outputs) {
    adapters.push_back({outputs, a.narrow(0, of_a, rank), b.narrow(0, of_b, outputs.length)});
    of_a += rank;
    of_b += outputs.length;
  }
  return adapters;
}

// Nothing where none of them is within the matrix.
std::optional<ForeignAdapter> joined(const Counterpart& part, const std::vector<OwnAdapter>& adapters, double scale) {
  std::vector<OwnAdapter> within;
  int64_t rank = 0;
  for (const OwnAdapter& one : adapters) {
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

std::vector<ForeignAdapter> foreign_adapters(const Checkpoint& checkpoint, const Family& family) {
  const ModelConfig& model = checkpoint.config.model;
  const std::map<std::string, at::Tensor> values(checkpoint.model.begin(), checkpoint.model.end());
  const std::vector<ParameterRow> rows = adapter_rows(parameter_table(model, checkpoint.config.training.tuning));
  std::vector<ForeignAdapter> found;
  for (const Counterpart& part : family.counterparts(model)) {
    const std::string weight = part.row.substr(0, part.row.rfind('.'));
    const auto row = std::ranges::find(rows, weight + ".lora_A", &ParameterRow::name);
    if (row == rows.end() || part.shape.size() < 2) continue;
    const auto adapters = own_adapters(*row->adapter, values.at(row->name), values.at(weight + ".lora_B"));
    if (auto one = joined(part, adapters, row->adapter->scale)) found.push_back(std::move(*one));
  }
  return found;
}

}  // namespace gpt::exchange
