#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "config/faults.h"
#include "gpt/config/option.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> parts = {"a",      "Z",      "0",   " ",    "\n",   "\t",  "\r",   "\"",
                                                 "'",      "\\",     ":",   ": ",   "#",    " #",  "-",    "- ",
                                                 "é",      "日",     "🙂",  "\x01", "\x7f", "{",   "]",    "&",
                                                 "*",      "!",      "%",   "@",    "`",    "~",   "null", "\u0085",
                                                 "\u2028", "\uFEFF", "---", "...",  "/",    "true"};
  std::string text;
  for (size_t n = random() % 6; n > 0; --n) text += parts[random() % parts.size()];
  return text;
}

double random_number(std::mt19937_64& random, double min, double max) {
  const double share = std::uniform_real_distribution<double>(0, 1)(random);
  if (random() % 2 == 0) return min + share * (max - min);
  return std::clamp(std::pow(10.0, -16 * share), min, max);  // small ones are written with an exponent
}

void randomise(const Option& row, std::mt19937_64& random) {
  const auto whole = [&] {
    const double max = std::min(row.max, 9e18);
    return static_cast<int64_t>(row.min +
                                std::floor(std::uniform_real_distribution<double>(0, 1)(random) * (max - row.min)));
  };
  if (auto* flag = std::get_if<bool*>(&row.target)) **flag = random() % 2;
  if (auto* integer = std::get_if<int64_t*>(&row.target)) **integer = whole();
  if (auto* number = std::get_if<double*>(&row.target)) **number = random_number(random, row.min, row.max);
  if (auto* text = std::get_if<std::string*>(&row.target)) **text = random_text(random);
  // A path has no line breaks.
  if (auto* text = std::get_if<std::string*>(&row.target); text && row.is_path)
    std::erase_if(**text, [](char c) { return c == '\n' || c == '\r'; });
  // Once read, no path begins with the sign for the home folder.
  if (auto* text = std::get_if<std::string*>(&row.target); text && row.is_path && (*text)->starts_with('~'))
    **text = "./" + **text;
  if (auto* optional = std::get_if<std::optional<int64_t>*>(&row.target)) {
    **optional = random() % 2 ? std::optional<int64_t>(whole()) : std::nullopt;
  }
  if (auto* number = std::get_if<NumberOrAuto>(&row.target)) *number->value = random() % 2 ? whole() : 0;
  if (auto* found = std::get_if<FoundNumber>(&row.target)) {
    *found->value = random_number(random, row.min, row.max);
    if (random() % 2) *found->is_auto = true, *found->value = Config().training.schedule.learning_rate;
  }
  if (auto* interval = std::get_if<Interval*>(&row.target))
    **interval = {whole() % (random() % 2 ? 3 : 1000000),
                  static_cast<Interval::Unit>(random() % (row.may_be_time ? 4 : 3))};
  if (auto* interval = std::get_if<Interval*>(&row.target); interval && random() % 4 == 0)
    **interval = {static_cast<int64_t>(random() % 101), Interval::Unit::percent};
  if (auto* duration = std::get_if<Duration*>(&row.target))
    (*duration)->seconds = random() % 3 == 0 ? 0 : random_number(random, row.min, row.max);
  if (auto* choice = std::get_if<Choice>(&row.target)) choice->set(random() % choice->names.size());
}

TEST(Dump, ReadsBackEqual) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    Config config;
    for (const Option& row : options(config)) randomise(row, random);
    const std::string text = dump(config);
    const Config back = from_yaml(text);
    ASSERT_EQ(dump(back), text);
    ASSERT_TRUE(difference(config, back).empty());
    ASSERT_EQ(back.training.cadence.sample_prompt, config.training.cadence.sample_prompt);
    ASSERT_EQ(back.training.schedule.learning_rate, config.training.schedule.learning_rate);
    ASSERT_EQ(back.training.cadence.eval_interval, config.training.cadence.eval_interval);
    ASSERT_EQ(back.training.cadence.checkpoint_interval, config.training.cadence.checkpoint_interval);
    ASSERT_EQ(back.training.schedule.max_time, config.training.schedule.max_time);
  }
}

TEST(Dump, ExplainsEveryKey) {
  Config defaults;
  defaults.training.cadence.sample_prompt = "\n";
  const std::string text = dump(defaults);
  for (const Option& row : options(defaults)) {
    EXPECT_NE(text.find(row.name + ": "), std::string::npos) << row.key();
    EXPECT_NE(text.find("# " + row.help + "\n"), std::string::npos) << row.key();
  }
  EXPECT_NE(text.find("  sample_prompt: \"\\n\" "), std::string::npos);
  EXPECT_NE(text.find("  min_lr: 1.0e-5 "), std::string::npos);  // Python's YAML reads 1e-5 as text
}

TEST(Difference, NamesEveryChangedKeyAndWhetherItIsSafe) {
  Config before, after;
  after.training.schedule.max_steps = 70;
  after.model.n_embd = 192;
  after.training.cadence.eval_interval = {2, Interval::Unit::epochs};
  const std::vector<Change> changes = difference(before, after);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].key, "model.n_embd");
  EXPECT_EQ(changes[0].before, "384");
  EXPECT_EQ(changes[0].after, "192");
  EXPECT_FALSE(changes[0].safe_on_resume);
  EXPECT_EQ(changes[1].key, "training.max_steps");
  EXPECT_EQ(changes[1].before, "auto");
  EXPECT_EQ(changes[1].after, "70");
  EXPECT_TRUE(changes[1].safe_on_resume);
  EXPECT_EQ(changes[2].after, "2 epochs");
}

TEST(Difference, WhatChangesTheDataOrTheShapeIsNotSafe) {
  std::set<std::string> unsafe;
  Config defaults;
  for (const Option& row : options(defaults)) {
    if (!row.safe_on_resume) unsafe.insert(row.key());
  }
  const std::set<std::string> expected = {"seed",
                                          "model.n_layer",
                                          "model.n_head",
                                          "model.n_kv_head",
                                          "model.n_embd",
                                          "model.head_dim",
                                          "model.n_hidden",
                                          "model.block_size",
                                          "model.vocab_size",
                                          "model.vocab_multiple",
                                          "model.norm",
                                          "model.mlp",
                                          "model.position",
                                          "model.qkv_bias",
                                          "model.qk_norm",
                                          "model.norm_place",
                                          "model.norm_unit_offset",
                                          "model.rope_window_theta",
                                          "model.scaled_embedding",
                                          "model.rope_pattern",
                                          "model.rope_attention_factor",
                                          "model.rope_beta_fast",
                                          "model.rope_beta_slow",
                                          "model.rope_high_freq_factor",
                                          "model.rope_low_freq_factor",
                                          "model.rope_original_length",
                                          "model.rope_scaling",
                                          "model.rope_scaling_factor",
                                          "model.rope_theta",
                                          "model.attention",
                                          "model.attention_block",
                                          "model.attention_top_blocks",
                                          "model.attention_window",
                                          "model.window_pattern",
                                          "model.last_layer_full",
                                          "model.norm_eps",
                                          "model.bias",
                                          "model.tie_weights",
                                          "data.text_field",
                                          "data.tokenizer",
                                          "data.validation_fraction",
                                          "distributed.lanes",
                                          "data.max_chars",
                                          "data.stages",
                                          "data.order",
                                          "data.document_mask",
                                          "data.learn",
                                          "data.chat_template",
                                          "data.trust_markup",
                                          "data.document_separator",
                                          "data.packing",
                                          "data.schedule",
                                          "training.amp_mode",
                                          "training.batch_size",
                                          "training.freeze",
                                          "training.gradient_accumulation_steps",
                                          "training.gradient_dtype",
                                          "training.init_from",
                                          "training.lora_alpha",
                                          "training.lora_also_train",
                                          "training.lora_base",
                                          "training.lora_dropout",
                                          "training.lora_rank",
                                          "training.lora_rank_stabilized",
                                          "training.lora_targets",
                                          "training.master_weights",
                                          "training.optimizer",
                                          "training.quantized_forward",
                                          "training.quantized_forward_skip",
                                          "training.quantized_products",
                                          "training.sequence_length",
                                          "training.total_batch_size",
                                          "training.use_amp",
                                          "training.dtype"};
  EXPECT_EQ(unsafe, expected);
}

// PyYAML reads off as False, and writes it as false.
TEST(Dump, WordsThatYamlTakesForSomethingElseAreQuoted) {
  Config config;
  config.data.resident = Resident::off;
  const std::string text = dump(config);
  EXPECT_NE(text.find("resident: \"off\""), std::string::npos);
  EXPECT_NE(text.find("on_divergence: \"off\""), std::string::npos);
  Config read;
  read_yaml("data: {resident: false}\ntraining: {on_divergence: false}\n", "c.yaml", read);
  EXPECT_EQ(read.data.resident, Resident::off);
  EXPECT_EQ(read.training.cadence.divergence.reaction, OnDivergence::off);
  read_yaml("data: {resident: true}\n", "c.yaml", read);
  EXPECT_EQ(read.data.resident, Resident::on);
  for (const char* word : {"off", "No", "y", "1_000", "1e5", "0x1F", "null", ".inf", "12", ".5"}) {
    std::string value = word;
    EXPECT_EQ(yaml_scalar(&value), '"' + value + '"');
  }
  for (const char* word : {"models/1", "face.txt", "2024-01-01.txt", "online", "a"}) {
    std::string value = word;
    EXPECT_EQ(yaml_scalar(&value), value);
  }
}

}  // namespace
}  // namespace gpt::config
