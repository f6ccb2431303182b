// Keys that change nothing beside others, or here: a run names those that a person has written.
#include "rule.h"

namespace gpt::config {
namespace {

std::vector<IdleRule> idle_data() {
  const auto reads_bin = [](const Config& c) { return !c.data.bin.empty() && c.data.stages.empty(); };
  const auto has_workers = [](const Config& c) { return c.data.num_workers.value_or(0) > 0; };
  return {
      {{"data.num_workers", "data.prefetch_factor", "data.persistent_workers", "data.pin_memory"},
       [](const Config&, const Facts& facts) { return facts.is_resident == true; },
       "the tokens are resident, and batches are built where they are"},
      {{"data.pin_memory"},
       [](const Config&, const Facts& facts) { return facts.is_resident == false && facts.is_cpu == true; },
       "a CPU needs no page-locked memory"},
      {{"data.prefetch_factor", "data.persistent_workers"},
       [=](const Config& c, const Facts& facts) { return facts.is_resident == false && !has_workers(c); },
       "data.num_workers is 0"},
      // Stages may read texts beside a bin.
      {{"data.cache_dir", "data.cache_limit", "data.text_field", "data.document_separator", "data.learn",
        "data.trust_markup"},
       [=](const Config& c, const Facts&) { return reads_bin(c); },
       "data.bin has token ids"},
      {{"data.validation_fraction"},
       [=](const Config& c, const Facts& facts) { return reads_bin(c) && facts.has_own_split == true; },
       "the bin has its own validation tokens"},
      {{"data.text_field"},
       [](const Config& c, const Facts& facts) { return c.data.bin.empty() && facts.has_json_lines == false; },
       "no file of the text is JSON lines"},
      {{"data.packing", "data.chat_template"},
       [](const Config&, const Facts& facts) { return facts.has_conversations == false; },
       "the data have no conversations"},
      {{"data.learn", "data.trust_markup"},
       [=](const Config& c, const Facts& facts) { return !reads_bin(c) && facts.has_conversations == false; },
       "the data have no conversations"},
      {{"data.order"},
       [](const Config& c, const Facts& facts) { return c.data.stages.empty() && facts.has_conversations == true; },
       "rows of several conversations have no order from easy to hard"},
  };
}

std::vector<IdleRule> idle_model() {
  const auto has_blocks = [](const Config& c) { return c.model.attention == AttentionForm::blocks; };
  return {
      {{"model.window_pattern", "model.last_layer_full", "model.rope_window_theta"},
       [](const Config& c, const Facts&) { return c.model.attention_window == 0; },
       "model.attention_window is 0"},
      {{"model.attention_block", "model.attention_top_blocks"},
       [=](const Config& c, const Facts&) { return !has_blocks(c); },
       "model.attention is full"},
      {{"model.rope_theta", "model.rope_scaling", "model.rope_pattern", "model.rope_window_theta"},
       [](const Config& c, const Facts&) { return c.model.position == Position::learned; },
       "model.position is learned"},
      {{"model.rope_scaling_factor"},
       [](const Config& c, const Facts&) { return c.model.rope_scaling.kind == RopeScalingKind::none; },
       "model.rope_scaling is none"},
      {{"model.rope_low_freq_factor", "model.rope_high_freq_factor"},
       [](const Config& c, const Facts&) { return c.model.rope_scaling.kind != RopeScalingKind::llama3; },
       "model.rope_scaling is not llama3"},
      {{"model.rope_beta_slow", "model.rope_beta_fast", "model.rope_attention_factor"},
       [](const Config& c, const Facts&) { return c.model.rope_scaling.kind != RopeScalingKind::yarn; },
       "model.rope_scaling is not yarn"},
      {{"model.rope_original_length"},
       [](const Config& c, const Facts&) {
         const RopeScalingKind kind = c.model.rope_scaling.kind;
         return kind != RopeScalingKind::llama3 && kind != RopeScalingKind::yarn;
       },
       "model.rope_scaling is neither llama3 nor yarn"},
      {{"model.qkv_bias"}, [](const Config& c, const Facts&) { return c.model.bias; }, "model.bias has it already"},
  };
}

std::vector<IdleRule> idle_precision() {
  return {
      {{"training.lora_alpha", "training.lora_targets", "training.lora_rank_stabilized", "training.lora_base",
        "training.lora_dropout", "training.lora_also_train"},
       [](const Config& c, const Facts&) { return !c.training.tuning.lora.is_on(); },
       "training.lora_rank is 0"},
      {{"training.quantized_products", "training.quantized_forward_skip", "training.quantized_forward_force"},
       [](const Config& c, const Facts&) { return !c.training.quantized.is_on(); },
       "training.quantized_forward is none"},
      {{"training.amp_mode"},
       [](const Config&, const Facts& facts) { return facts.computes_in_16_bits == false; },
       "the run does not compute in 16 bits"},
      {{"training.gradient_dtype"},
       [](const Config& c, const Facts& facts) {
         return facts.is_end_to_end == false && c.training.precision.gradient_dtype == GradientDtype::bfloat16;
       },
       "the run does not compute in bfloat16 end to end"},
      {{"training.float32_embedding_state"},
       [](const Config& c, const Facts&) { return c.training.optimizer.state_dtype == StateDtype::float32; },
       "all of AdamW's state is float32"},
      {{"training.loss_chunk_rows", "training.compile_mode"},
       [](const Config& c, const Facts&) { return !c.training.execution.use_compile; },
       "training.use_compile is false"},
      {{"training.expandable_segments"},
       [](const Config&, const Facts& facts) { return facts.is_cpu == true; },
       "it is for a GPU"},
      {{"training.expandable_segments"},
       [](const Config&, const Facts& facts) { return facts.is_cpu == false && facts.allocator_is_set; },
       "PYTORCH_ALLOC_CONF is set"},
  };
}

std::vector<IdleRule> idle_optimizer() {
  const auto follows = [](LrSchedule schedule) {
    return [schedule](const Config& c, const Facts&) { return c.training.schedule.lr_schedule != schedule; };
  };
  const auto has_teacher = [](const Config& c) { return !c.training.distillation.from.empty(); };
  return {
      {{"training.muon_momentum"},
       [](const Config& c, const Facts&) { return !c.training.optimizer.has_muon(); },
       "training.optimizer is adamw"},
      {{"training.average_after"},
       [](const Config& c, const Facts&) { return !c.training.optimizer.has_averages(); },
       "training.ema_decay is 0"},
      {{"training.cautious_weight_decay", "training.weight_decay_schedule"},
       [](const Config& c, const Facts&) { return c.training.optimizer.weight_decay == 0; },
       "training.weight_decay is 0"},
      {{"training.distill_weight", "training.distill_temperature"},
       [=](const Config& c, const Facts&) { return !has_teacher(c); },
       "training.distill_from names no teacher"},
      {{"training.distill_from"},
       [=](const Config& c, const Facts&) { return has_teacher(c) && c.training.distillation.weight == 0; },
       "training.distill_weight is 0"},
      {{"training.min_lr"},
       [](const Config& c, const Facts&) { return c.training.schedule.lr_schedule == LrSchedule::constant; },
       "training.lr_schedule is constant"},
      {{"training.decay_fraction", "training.decay_shape"},
       follows(LrSchedule::wsd),
       "training.lr_schedule is not wsd"},
      {{"training.plateau_factor", "training.plateau_patience", "training.plateau_threshold",
        "training.plateau_cooldown"},
       follows(LrSchedule::plateau),
       "training.lr_schedule is not plateau"},
      {{"data.schedule"},
       [](const Config& c, const Facts&) { return c.data.schedule == DataSchedule::grow && !c.data.stages.empty(); },
       "data.stages says what the run reads"},
  };
}

std::vector<IdleRule> idle_processes() {
  const auto is_alone = [](const Config&, const Facts& facts) { return facts.processes == 1; };
  return {
      {{"distributed.zero"},
       [](const Config&, const Facts& facts) { return facts.data_processes == 1; },
       "no other process has the same part of the model"},
      {{"distributed.reduce_dtype"},
       [](const Config&, const Facts& facts) { return facts.data_processes == 1; },
       "no gradients are sent"},
      {{"distributed.timeout", "distributed.restarts", "distributed.min_processes"}, is_alone, "there is one process"},
      {{"distributed.min_processes"},
       [](const Config& c, const Facts& facts) {
         return facts.processes.value_or(1) > 1 && c.distributed.restarts == 0;
       },
       "distributed.restarts is 0"},
  };
}

std::vector<IdleRule> idle_cadence() {
  const auto never = [](const Interval& (*interval)(const CadenceConfig&)) {
    return [interval](const Config& c, const Facts&) { return interval(c.training.cadence).count == 0; };
  };
  const auto samples = never([](const CadenceConfig& c) -> const Interval& { return c.sample_interval; }),
             saves = never([](const CadenceConfig& c) -> const Interval& { return c.checkpoint_interval; }),
             validates = never([](const CadenceConfig& c) -> const Interval& { return c.eval_interval; });
  return {
      {{"training.sample_tokens", "training.sample_prompt"}, samples, "training.sample_interval is 0"},
      {{"training.evaluate"},
       [](const Config& c, const Facts&) {
         return c.training.cadence.eval_interval.count == 0 && c.training.cadence.sample_interval.count == 0;
       },
       "the run neither validates nor writes samples"},
      {{"training.eval_interval"},
       [](const Config& c, const Facts& facts) {
         return facts.has_validation == false && c.training.cadence.eval_tasks.empty();
       },
       "the data has no validation split"},
      {{"training.patience"},
       [](const Config&, const Facts& facts) { return facts.has_validation == false; },
       "the data has no validation split"},
      {{"training.keep_last"}, saves, "training.checkpoint_interval is 0"},
      {{"training.patience", "training.eval_batches", "training.eval_tasks"}, validates, "training.eval_interval is 0"},
      {{"training.eval_task_limit"},
       [](const Config& c, const Facts&) { return c.training.cadence.eval_tasks.empty(); },
       "training.eval_tasks names no task"},
      {{"training.spike_window", "training.spike_threshold"},
       [](const Config& c, const Facts&) { return !c.training.cadence.divergence.looks_for_spikes(); },
       "training.on_divergence is off"},
      {{"training.rollback_lr_factor", "training.max_rollbacks"},
       [](const Config& c, const Facts&) { return !c.training.cadence.divergence.goes_back(); },
       "training.on_divergence is not rollback"},
  };
}

}  // namespace

std::vector<IdleRule> idle_rules() {
  std::vector<IdleRule> rules;
  for (auto group : {idle_precision, idle_optimizer, idle_model, idle_processes, idle_cadence, idle_data})
    for (IdleRule& rule : group()) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace gpt::config
