#include "gpt/optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpt/core/log.h"
#include "gpt/ops/muon.h"
#include "gpt/optim/newton_schulz.h"

namespace gpt::optim {
namespace {

constexpr double kRmsOfAdamW = 0.2;  // of the updates in practice, Liu et al. found
// Momentum and least divisor of NorMuon's second moment, as its authors have them.
constexpr double kSecondMomentum = 0.95, kLeastDivisor = 1e-10;

// What of the spans AdamW updates beside Muon.
std::vector<layout::FlatSpan> spans_of_adamw(const parameters::Parameters& parameters, const OptimizerConfig& config,
                                             const std::vector<layout::FlatSpan>& spans) {
  std::vector<layout::FlatSpan> of_adamw;
  for (const layout::FlatSpan& span : spans)
    for (const StateRange& range : state_ranges(parameters.rows(), parameters.layout(), config))
      if (const layout::FlatSpan part{std::max(span.begin, range.begin), std::min(span.end, range.end)};
          range.form.kind == OptimizerKind::adamw && part.begin < part.end)
        of_adamw.push_back(part);
  return of_adamw;
}

// AdamW's stretches, and between them those of the matrices.
std::vector<StateStretch> with_matrices(const std::vector<StateStretch>& of_adamw,
                                        const parameters::Parameters& parameters, const OptimizerConfig& config,
                                        const std::vector<layout::FlatSpan>& spans) {
  std::vector<StateRange> ranges = state_ranges(parameters.rows(), parameters.layout(), config);
  std::erase_if(ranges, [](const StateRange& range) { return range.form.kind == OptimizerKind::adamw; });
  std::vector<StateStretch> all = new_state(ranges, spans, parameters.device());
  all.insert(all.end(), of_adamw.begin(), of_adamw.end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.range.begin < b.range.begin; });
  return all;
}

// Rows that are updated together, since small matrices leave threads idle; without end they would take as much memory as the gradients.
class Together {
 public:
  // Whether the row goes with those before it; otherwise it begins anew.
  bool takes(const layout::ParameterRow& row) {
    const bool fits = values_ + row.count() <= kMostValues;
    values_ = (fits ? values_ : 0) + row.count();
    return fits;
  }

 private:
  static constexpr int64_t kMostValues = 1 << 22;
  int64_t values_ = 0;
};

// By which the orthogonal update of a matrix is multiplied.
double size_of_update(int64_t rows, int64_t columns) {
  return kRmsOfAdamW * std::sqrt(static_cast<double>(std::max(rows, columns)));
}

// The same relative to the first matrix of a row. 1 rounds nothing.
double relative_size(const layout::ParameterRow& row, int64_t rows) {
  return size_of_update(rows, row.shape[1]) / size_of_update(rows_of_matrices(row).front(), row.shape[1]);
}

at::Tensor norm_of(const at::Tensor& x) { return at::linalg_vector_norm(x, 2, {}, /*keepdim=*/false, at::kFloat); }

// NorMuon's update of one matrix (rows, columns) from its orthogonal one, and of its second moment (rows).
at::Tensor with_even_rows(const at::Tensor& update, const at::Tensor& second_moment, const at::Tensor& found_inf) {
  const at::Tensor wide = update.to(at::kFloat), before = second_moment.to(update.device(), /*non_blocking=*/true),
                   after = before.lerp(wide.square().mean(1), 1 - kSecondMomentum);
  second_moment.copy_(at::where(found_inf != 0, before, after), /*non_blocking=*/true);
  const at::Tensor scaled = wide / (after.sqrt() + kLeastDivisor).unsqueeze(1);
  return scaled * (norm_of(wide) / (norm_of(scaled) + kLeastDivisor));
}

}  // namespace

bool is_of_muon(const layout::ParameterRow& row, const OptimizerConfig& config) {
  return row.is_trained && state_form(row, config).kind != OptimizerKind::adamw;
}

std::vector<int64_t> rows_of_matrices(const layout::ParameterRow& row) {
  const int64_t rows = row.shape.at(0), queries = row.query_rows;
  if (row.role != layout::ParameterRole::attention_in) return {rows};
  TORCH_CHECK(queries > 0 && rows > queries && (rows - queries) % 2 == 0, "no keys and values beside ", queries,
              " rows of queries have ", rows, " rows together");
  const int64_t of_key = (rows - queries) / 2;
  return {queries, of_key, of_key};
}

double update_flops(const layout::ParameterRow& row) {
  double flops = 0;
  for (const int64_t part : rows_of_matrices(row)) flops += newton_schulz_flops(part, row.shape[1]);
  return flops;
}

MuonWork muon_work(const std::vector<layout::ParameterRow>& rows, const OptimizerConfig& config) {
  MuonWork work;
  for (const layout::ParameterRow& row : rows) {
    if (!is_of_muon(row, config)) continue;
    work.parameters += static_cast<double>(row.count());
    work.flops += update_flops(row);
    work.matrices += std::ssize(rows_of_matrices(row));
    for (const int64_t part : rows_of_matrices(row)) work.least_flops += least_newton_schulz_flops(part, row.shape[1]);
  }
  return work;
}

double muon_workspace(const std::vector<layout::ParameterRow>& rows, const OptimizerConfig& config,
                      at::ScalarType type) {
  const double bytes_of_value = 2.0 * static_cast<double>(c10::elementSize(type)) +  // its direction and its update
                                (config.kind == OptimizerKind::normuon ? 3.0 * sizeof(float) : 0);
  double most = 0, bytes = 0;
  Together together;
  for (const size_t i : layout::flat_order(rows)) {
    const layout::ParameterRow& row = rows[i];
    if (!is_of_muon(row, config)) continue;
    if (!together.takes(row)) bytes = 0;
    bytes += static_cast<double>(row.count()) * bytes_of_value;
    for (const int64_t part : rows_of_matrices(row)) bytes += newton_schulz_workspace(part, row.shape[1], type);
    most = std::max(most, bytes);
  }
  return most;
}

std::string Muon::name(const OptimizerConfig& config) {
  const char* const kept = config.state_dtype == StateDtype::float32    ? ""
                           : config.state_dtype == StateDtype::bfloat16 ? ", with the momentum in bfloat16"
                                                                        : ", with the momentum in 8 bits";
  return fmt::format("{} for the matrices of the blocks{}; {} for all else",
                     config.kind == OptimizerKind::normuon ? "NorMuon" : "Muon", kept, AdamW::name(config));
}

Muon::Muon(const parameters::Parameters& parameters, const OptimizerConfig& config,
           const std::vector<layout::FlatSpan>& spans, at::ScalarType type)
    : parameters_(parameters),
      config_(config),
      type_(type == at::ScalarType::Undefined ? newton_schulz_type(device::describe_device(parameters.device()))
                                              : type),
      adamw_(parameters, config, spans_of_adamw(parameters, config, spans)),
      stretches_(with_matrices(adamw_.stretches(), parameters, config, spans)) {
  TORCH_CHECK(config.has_muon() && config.fused_adamw, "Muon: another optimizer was asked for");
}

void Muon::step(const UpdateScalars& of_update) {
  at::NoGradGuard no_grad;
  adamw_.step(of_update);
  if (of_update.found_inf.is_cpu() && of_update.found_inf.item<float>() != 0)
    return;  // elsewhere the kernels look, so that nothing waits
  // The count is this update's number now, or that of the one before where nothing changes.
  const ops::MuonScalars scalars{of_update.learning_rate, of_update.decay_share, step_count(), of_update.grad_scale,
                                 of_update.found_inf};
  std::vector<Update> updates;
  Together together;
  auto stretch = stretches_.begin();
  for (const size_t i : layout::flat_order(parameters_.rows())) {
    const layout::ParameterRow& row = parameters_.rows()[i];
    const int64_t begin = parameters_.layout().offsets[i];
    if (!row.is_trained) break;
    while (stretch != stretches_.end() && stretch->range.end <= begin) ++stretch;
    if (stretch == stretches_.end()) break;
    if (stretch->range.form.kind == OptimizerKind::adamw || stretch->range.begin > begin) continue;
    if (!together.takes(row)) apply(std::exchange(updates, {}), scalars);
    updates.push_back({row, *stretch, direction(*stretch, scalars)});
  }
  apply(updates, scalars);
}

at::Tensor Muon::direction(const StateStretch& stretch, const ops::MuonScalars& scalars) const {
  const auto& [range, slots] = stretch;
  const at::Tensor gradients = parameters_.gradients_of({range.begin, range.end}),
                   direction = at::empty({gradients.numel()}, gradients.options().dtype(type_));
  ops::muon_direction({.gradients = gradients,
                       .momentum = slots[0],
                       .momentum_max = range.form.dtype == StateDtype::int8 ? slots[1] : at::Tensor(),
                       .direction = direction},
                      config_.muon_momentum, scalars);
  return direction;
}

// Relative to the size that the update of the first matrix of a row has: the kernel has one for all of the row.
void Muon::apply(const std::vector<Update>& updates, const ops::MuonScalars& scalars) const {
  const bool is_normuon = config_.kind == OptimizerKind::normuon;
  std::vector<Orthogonalization> matrices;
  std::vector<at::Tensor> orthogonal;
  for (const auto& [row, stretch, direction] : updates) {
    const at::Tensor all = at::empty_like(direction);
    all.narrow(0, row.count(), all.numel() - row.count()).zero_();
    int64_t first = 0;
    for (const int64_t rows : rows_of_matrices(row)) {
      const auto part = [&](const at::Tensor& flat) {
        return flat.narrow(0, 0, row.count()).view(row.shape).narrow(0, first, rows);
      };
      matrices.push_back({part(direction), part(all), is_normuon ? 1 : relative_size(row, rows)});
      first += rows;
    }
    orthogonal.push_back(all);
  }
  orthogonalize(matrices);
  for (size_t i = 0; i < updates.size(); ++i) {
    if (is_normuon) even_rows(updates[i], orthogonal[i], scalars.found_inf);
    write(updates[i], orthogonal[i], scalars);
  }
}

void Muon::even_rows(const Update& of, const at::Tensor& orthogonal, const at::Tensor& found_inf) const {
  int64_t first = 0;
  for (const int64_t rows : rows_of_matrices(of.row)) {
    const at::Tensor update = orthogonal.narrow(0, 0, of.row.count()).view(of.row.shape).narrow(0, first, rows);
    const at::Tensor even = with_even_rows(update, of.stretch.slots.back().narrow(0, first, rows), found_inf);
    update.copy_(even.mul_(relative_size(of.row, rows)));
    first += rows;
  }
}

void Muon::write(const Update& of, const at::Tensor& orthogonal, const ops::MuonScalars& scalars) const {
  const StateRange& range = of.stretch.range;
  const auto part = [&range](const at::Tensor& flat) {
    return flat.defined() ? flat.slice(0, range.begin, range.end) : flat;
  };
  const at::Tensor values = part(parameters_.flat_values());
  const bool has_master = values.scalar_type() == at::kFloat;
  ops::muon_update({.values = has_master ? values : at::Tensor(),
                    .rounded = has_master ? part(parameters_.flat_rounded()) : values,
                    .direction = orthogonal,
                    .first_block = range.begin / layout::kParameterAlignment},
                   {.size = size_of_update(rows_of_matrices(of.row).front(), of.row.shape[1]),
                    .weight_decay = config_.weight_decay,
                    .is_cautious = config_.cautious_weight_decay},
                   scalars);
}

const std::vector<StateStretch>& Muon::stretches() const {
  (void)adamw_.stretches();  // waits until the host may touch them
  return stretches_;
}

OptimizerState Muon::state() const {
  return named_state(parameters_.rows(), parameters_.layout(), stretches(), step_count());
}

void Muon::load(const OptimizerState& from) {
  const bool is_converted = load_state(from, parameters_.rows(), parameters_.layout(), config_, stretches());
  at::Tensor(step_count()).copy_(from.step_count);
  if (is_converted) log::info("The optimizer's state was of another type and has been converted");
}

}  // namespace gpt::optim
