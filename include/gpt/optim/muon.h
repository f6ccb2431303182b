// Muon (Jordan et al., 2024) for the matrices of the blocks, and AdamW for all other parameters. Muon's update is the momentum, Nesterov's,
// made orthogonal (newton_schulz.h) and multiplied by 0.2 sqrt(the longer side), so that it is about as large as AdamW's and both have the
// same learning rate and weight decay (Liu et al., 2025, "Muon is Scalable for LLM Training"; match_rms_adamw of torch.optim.Muon).
// NorMuon (Li et al., 2025) also divides each row by the root of its mean square over time, and keeps the norm of the whole.
//
// Query, key and value lie in one matrix but are three, and each is made orthogonal by itself. Everything that changes between steps is a
// device tensor, so nothing syncs. Processes of one run all compute the same update, each the whole of it, or that of its own matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/ops/muon.h"
#include "gpt/optim/adamw.h"
#include "gpt/optim/optimizer.h"
#include "gpt/parameters/parameters.h"

namespace gpt::optim {

// How many rows each of the matrices has that a parameter of Muon's consists of, one above the other.
std::vector<int64_t> rows_of_matrices(const layout::ParameterRow& row);

bool is_of_muon(const layout::ParameterRow& row, const OptimizerConfig& config);
double update_flops(const layout::ParameterRow& row);  // floating-point operations of Newton-Schulz

// What Muon has of these parameters, in how many matrices, and the floating-point operations of Newton-Schulz in an update, as its steps are
// written and at least. All 0 without Muon.
struct MuonWork {
  double parameters = 0, flops = 0, least_flops = 0;
  int64_t matrices = 0;
};
MuonWork muon_work(const std::vector<layout::ParameterRow>& rows, const OptimizerConfig& config);
// Bytes that an update takes at the most beside gradients and state, where Newton-Schulz computes in `type`.
double muon_workspace(const std::vector<layout::ParameterRow>& rows, const OptimizerConfig& config,
                      at::ScalarType type);

class Muon : public Optimizer {
 public:
  static std::string name(const OptimizerConfig& config);

  // `spans`: what of the flat buffer it updates and remembers, of a matrix all or nothing. `type`: of Newton-Schulz. Undefined:
  // newton_schulz_type() of the parameters' device.
  Muon(const parameters::Parameters& parameters, const OptimizerConfig& config,
       const std::vector<layout::FlatSpan>& spans, at::ScalarType type = at::ScalarType::Undefined);
  Muon(const parameters::Parameters& parameters, const OptimizerConfig& config,
       at::ScalarType type = at::ScalarType::Undefined)
      : Muon(parameters, config, {{0, parameters.layout().trained_size}}, type) {}

  void step(const UpdateScalars& scalars) override;
  const std::vector<StateStretch>& stretches() const override;
  const at::Tensor& step_count() const override { return adamw_.step_count(); }
  OptimizerState state() const override;
  StateBytes bytes() const override { return state_bytes(stretches_); }
  // Loads the state as AdamW does.
  void load(const OptimizerState& state) override;

 private:
  // The update of a row; `direction` is what is made orthogonal, as long as the stretch.
  struct Update {
    const layout::ParameterRow& row;
    const StateStretch& stretch;
    at::Tensor direction;
  };
  at::Tensor direction(const StateStretch& stretch, const ops::MuonScalars& scalars) const;
  void apply(const std::vector<Update>& updates, const ops::MuonScalars& scalars) const;
  void even_rows(const Update& of, const at::Tensor& orthogonal, const at::Tensor& found_inf) const;
  void write(const Update& of, const at::Tensor& orthogonal, const ops::MuonScalars& scalars) const;

  parameters::Parameters parameters_;
  OptimizerConfig config_;
  at::ScalarType type_;                  // of Newton-Schulz
  AdamW adamw_;                          // of all but the matrices
  std::vector<StateStretch> stretches_;  // of both
};

}  // namespace gpt::optim
