#include "terms.h"

#include <algorithm>
#include <utility>

#include "gpt/layout/stages.h"
#include "gpt/layout/tuning.h"
#include "gpt/parallel/pipeline_schedule.h"

namespace gpt::plan::terms {

RunPart::RunPart(const ModelConfig& whole, const TrainingConfig& training, const ActivationForm& form,
                 const layout::ModelPart& part)
    : whole(whole),
      training(training),
      form(form),
      part(part),
      gradient(device::gradient_type(training, form.end_to_end)),
      is_narrow(form.compute_type != at::kFloat),
      model(layout::largest_part(whole, form.model_parts)),
      bytes(model, form) {
  const std::vector<layout::ParameterRow> all = layout::parameter_table(model, training.tuning);
  const int64_t first_trained = layout::first_trained_layer(all);
  rows = layout::cut(all, model, part);
  layout = layout::flat_layout(rows);
  const layout::LayerSpan own = layout::stages_of(model, part.stages)[static_cast<size_t>(part.stage)];
  in_flight =
      static_cast<double>(parallel::most_in_flight(part.stage, part.stages, form.micro_batches.value_or(part.stages)));
  layers = static_cast<double>(std::max<int64_t>(0, own.end - std::max(own.begin, first_trained)));
  passes_gradients_on = layout::passes_gradients_on(part.stage, own, first_trained);
  model = in_training(std::move(model), training);
  tokens = static_cast<double>(training.batch_size * model.block_size);
}

// Each in the file of its name.
Term parameters(), optimizer(), averages(), blocks(), ends(), teacher(), swapping(), quantized_forward(), checkpoints(),
    recording(), tensor_parallel(), stages(), data_parallel(), adapters();

const std::vector<Term>& all() {
  static const std::vector<Term> terms{parameters(),      optimizer(), averages(),          blocks(),      ends(),
                                       teacher(),         swapping(),  quantized_forward(), checkpoints(), recording(),
                                       tensor_parallel(), stages(),    data_parallel(),     adapters()};
  return terms;
}

}  // namespace gpt::plan::terms
