#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/faults.h"
#include "gpt/config/option.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

TEST(Yaml, SetsEveryKindOfValue) {
  const Config c = from_yaml(R"(
seed: 7
device: cuda:1
model:
  n_hidden: 512
  norm: layernorm
  bias: true
  dropout: 1e-5
training:
  epochs: 3
  max_steps: auto
  eval_interval: 2 epochs
  checkpoint_interval: 1 step
  sample_interval: "500 steps"
  sample_prompt: "a: \"b\"\n"
  compile_mode: reduce-overhead
)");
  EXPECT_EQ(c.seed, 7);
  EXPECT_EQ(c.device, "cuda:1");
  EXPECT_EQ(c.model.n_hidden, 512);
  EXPECT_EQ(c.model.norm, Norm::layernorm);
  EXPECT_TRUE(c.model.bias);
  EXPECT_EQ(c.model.dropout, 1e-5);
  EXPECT_EQ(c.training.schedule.epochs, 3);
  EXPECT_EQ(c.training.schedule.max_steps, std::nullopt);
  EXPECT_EQ(c.training.cadence.eval_interval, (Interval{2, Interval::Unit::epochs}));
  EXPECT_EQ(c.training.cadence.checkpoint_interval, (Interval{1, Interval::Unit::steps}));
  EXPECT_EQ(c.training.cadence.sample_interval, (Interval{500, Interval::Unit::steps}));
  EXPECT_EQ(c.training.cadence.sample_prompt, "a: \"b\"\n");
  EXPECT_EQ(c.training.execution.compile_mode, CompileMode::reduce_overhead);
}

TEST(Yaml, TakesTheWordsForTrueAndFalse) {
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "on", "ON"}) {
    const Config c = from_yaml(fmt::format("use_gpu: {0}\nmodel: {{bias: {0}}}\n", yes));
    EXPECT_TRUE(c.model.bias) << yes;
    EXPECT_EQ(c.device, "auto") << yes;
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "off", "OFF"}) {
    const Config c = from_yaml(fmt::format("use_gpu: {0}\nmodel: {{tie_weights: {0}}}\n", no));
    EXPECT_FALSE(c.model.tie_weights) << no;
    EXPECT_EQ(c.device, "cpu") << no;
  }
  const Config c = from_yaml("data: {resident: on, text: yes}\ntraining: {sample_prompt: True}\n");
  EXPECT_EQ(c.data.resident, Resident::on);
  EXPECT_EQ(c.data.text, "yes");
  EXPECT_EQ(c.training.cadence.sample_prompt, "True");
}

TEST(Yaml, CheckpointsMayBeCountedInTime) {
  EXPECT_EQ(dump(Config{}).find("checkpoint_interval: 10 minutes") != std::string::npos, true);
  const std::pair<const char*, int64_t> cases[] = {{"1 second", 1},     {"90 seconds", 90}, {"1 minute", 60},
                                                   {"10 minutes", 600}, {"1 hour", 3600},   {"2 hours", 7200},
                                                   {"0 seconds", 0}};
  for (const auto& [text, seconds] : cases) {
    Config c = from_yaml(std::string("training: {checkpoint_interval: ") + text + "}\n");
    EXPECT_EQ(c.training.cadence.checkpoint_interval, (Interval{seconds, Interval::Unit::seconds})) << text;
    EXPECT_EQ(value_text(&c.training.cadence.checkpoint_interval), text);
  }
  Config c = from_yaml("training: {checkpoint_interval: 120 minutes}\n");
  EXPECT_EQ(value_text(&c.training.cadence.checkpoint_interval), "2 hours");
}

TEST(Yaml, TakesEmptyFilesEmptySectionsByteOrderMarksAndWindowsLines) {
  const std::string defaults = dump(Config{});
  for (const char* yaml : {"", "\n\n", "# nothing\n", "model:\n", "model: {}\ntraining:\n  # seed: 3\n", "---\n"}) {
    EXPECT_EQ(dump(from_yaml(yaml)), defaults) << yaml;
  }
  EXPECT_EQ(from_yaml("\xEF\xBB\xBFseed: 7\r\nmodel:\r\n  n_head: 3\r\n").model.n_head, 3);
}

TEST(Yaml, PlacesEveryFault) {
  const std::pair<const char*, const char*> cases[] = {
      // unknown and misplaced keys
      {"sed: 1\n", "c.yaml:1:1: unknown key 'sed'; did you mean 'seed'?"},
      {"model:\n  n_heds: 4\n", "c.yaml:2:3: unknown key 'n_heds' in 'model'; did you mean 'n_heads'?"},
      {"modle:\n  n_head: 4\n", "c.yaml:1:1: unknown key 'modle'; did you mean 'model'?"},
      {"model:\n  lerning_rate: 1\n",
       "c.yaml:2:3: unknown key 'lerning_rate' in 'model'; did you mean 'learning_rate' in 'training'?"},
      {"model:\n  wxyzwxyz: 1\n", "c.yaml:2:3: unknown key 'wxyzwxyz' in 'model'; --help lists all keys"},
      {"model:\n  batch_size: 4\n", "c.yaml:2:3: 'batch_size' belongs below 'training:', indented"},
      {"training:\n  seed: 4\n", "c.yaml:2:3: 'seed' belongs at the top level, not indented"},
      {"d_model: 4\n", "c.yaml:1:1: 'd_model' belongs below 'model:', indented"},
      {"model:\n  training:\n    seed: 4\n", "c.yaml:2:3: section 'training' belongs at the top level, not indented"},
      // duplicates
      {"seed: 1\nseed: 2\n", "c.yaml:2:1: 'seed' is already set at c.yaml:1:1; keep one"},
      {"model:\n  d_model: 8\n  n_embd: 8\n", "c.yaml:3:3: 'model.n_embd' is already set at c.yaml:2:3; keep one"},
      {"model:\n  bias: true\nmodel:\n  bias: false\n",
       "c.yaml:3:1: section 'model' already exists at c.yaml:1:1; merge the two"},
      // wrong types
      {"seed: x\n", "c.yaml:1:7: 'seed' must be a whole number >= 0, got 'x'"},
      {"seed: 1.5\n", "c.yaml:1:7: 'seed' must be a whole number >= 0, got '1.5'"},
      {"seed: 1e3\n", "c.yaml:1:7: 'seed' must be a whole number >= 0, got '1e3'; write 1000"},
      {"seed: \"1\"\n", "c.yaml:1:7: 'seed' must be a whole number >= 0, got '1' as text; write 1 without quotes"},
      {"training:\n  min_lr: \"1e-5\"\n",
       "c.yaml:2:11: 'training.min_lr' must be a number from 0 to 10, got '1e-5' as text; write 1e-5 without quotes"},
      {"training:\n  min_lr: '1e-5'\n",
       "c.yaml:2:11: 'training.min_lr' must be a number from 0 to 10, got '1e-5' as text; write 1e-5 without quotes"},
      {"training:\n  min_lr: .nan\n", "c.yaml:2:11: 'training.min_lr' must be a number from 0 to 10, got '.nan'"},
      {"training:\n  min_lr: nan\n", "c.yaml:2:11: 'training.min_lr' must be a number from 0 to 10, got 'nan'"},
      {"training:\n  weight_decay: inf\n",
       "c.yaml:2:17: 'training.weight_decay' must be a number from 0 to 10, got 'inf'"},
      {"training:\n  min_lr: 1,5\n", "c.yaml:2:11: 'training.min_lr' must be a number from 0 to 10, got '1,5'"},
      {"training:\n  min_lr: 1e999\n", "c.yaml:2:11: 'training.min_lr' must be a number from 0 to 10, got '1e999'"},
      {"model:\n  bias: 1\n", "c.yaml:2:9: 'model.bias' must be true or false, got '1'; write true"},
      {"model:\n  bias: maybe\n", "c.yaml:2:9: 'model.bias' must be true or false, got 'maybe'"},
      {"model:\n  bias: \"yes\"\n",
       "c.yaml:2:9: 'model.bias' must be true or false, got 'yes' as text; write yes without quotes"},
      {"use_gpu: 'False'\n",
       "c.yaml:1:10: 'use_gpu' must be true or false, got 'False' as text; write False without quotes"},
      {"data:\n  resident: maybe\n", "c.yaml:2:13: 'data.resident' must be one of auto, on, off, got 'maybe'"},
      {"model:\n  norm: rmsnrom\n",
       "c.yaml:2:9: 'model.norm' must be one of layernorm, rmsnorm, got 'rmsnrom'; did you mean 'rmsnorm'?"},
      {"training:\n  epochs: many\n",
       "c.yaml:2:11: 'training.epochs' must be auto or a whole number from 1 to 1e9, got 'many'"},
      {"training:\n  eval_interval: 5 days\n",
       "c.yaml:2:18: 'training.eval_interval' must be like 500, '500 steps', '2 epochs' or '10 %', got '5 days'"},
      {"training:\n  eval_interval: 10 minutes\n",
       "c.yaml:2:18: 'training.eval_interval' must be like 500, '500 steps', '2 epochs' or '10 %', got '10 minutes'; only "
       "checkpoint_interval may be a time, since a run's losses and samples must not depend on its speed"},
      {"training:\n  sample_interval: 1 hour\n",
       "c.yaml:2:20: 'training.sample_interval' must be like 500, '500 steps', '2 epochs' or '10 %', got '1 hour'; only "
       "checkpoint_interval may be a time, since a run's losses and samples must not depend on its speed"},
      {"training:\n  checkpoint_interval: 5 days\n",
       "c.yaml:2:24: 'training.checkpoint_interval' must be like 500, '500 steps', '2 epochs', '10 %' or '10 minutes', got "
       "'5 days'"},
      {"training:\n  checkpoint_interval: 9223372036854775807 hours\n",
       "c.yaml:2:24: 'training.checkpoint_interval' must be like 500, '500 steps', '2 epochs', '10 %' or '10 minutes', got "
       "'9223372036854775807 hours'"},
      {"training:\n  eval_interval: 101 %\n",
       "c.yaml:2:18: 'training.eval_interval' must be like 500, '500 steps', '2 epochs' or '10 %', got '101 %'"},
      {"training:\n  max_time: 10\n",
       "c.yaml:2:13: 'training.max_time' must be a time like '90 seconds', '10 minutes' or '1.5 hours' (none, or 1 second to "
       "3650 days), got '10'"},
      {"training:\n  max_time: 10 steps\n",
       "c.yaml:2:13: 'training.max_time' must be a time like '90 seconds', '10 minutes' or '1.5 hours' (none, or 1 second to "
       "3650 days), got '10 steps'"},
      {"training:\n  max_time: 0.5 seconds\n",
       "c.yaml:2:13: 'training.max_time' must be a time like '90 seconds', '10 minutes' or '1.5 hours' (none, or 1 second to "
       "3650 days), got '0.5 seconds'"},
      {"seed: 99999999999999999999\n",
       "c.yaml:1:7: 'seed' must be a whole number >= 0, got '99999999999999999999'; the largest is 9223372036854775807"},
      // out of range
      {"seed: -1\n", "c.yaml:1:7: 'seed' must be a whole number >= 0, got '-1'"},
      {"model:\n  dropout: 1.0\n", "c.yaml:2:12: 'model.dropout' must be a number from 0 to 0.9, got '1.0'"},
      {"training:\n  eval_interval: -2 steps\n",
       "c.yaml:2:18: 'training.eval_interval' must be like 500, '500 steps', '2 epochs' or '10 %', got '-2 steps'"},
      // the wrong shape
      {"seed:\n", "c.yaml:1:1: 'seed' has no value; remove the line to use the default"},
      {"seed: ~\n", "c.yaml:1:1: 'seed' has no value; remove the line to use the default"},
      {"seed: [1]\n", "c.yaml:1:7: 'seed' takes one value, not a list"},
      {"model: [1]\n", "c.yaml:1:8: 'model' is a section, got a list; its keys go below it, indented"},
      {"model:\n  - n_head: 4\n", "c.yaml:2:3: 'model' is a section, got a list; its keys go below it, indented"},
      {"seed:\n  a: 1\n", "c.yaml:2:3: 'seed' takes one value, not keys of its own"},
      {"model:\n  bias:\n    a: 1\n", "c.yaml:3:5: 'bias' takes one value, not keys of its own"},
      {"model: gpt2\n", "c.yaml:1:8: 'model' is a section, got 'gpt2'; its keys go below it, indented"},
      {"- seed\n", "c.yaml:1:1: expected lines of 'key: value', got a list"},
      {"\"seed\"\n", "c.yaml:1:1: expected lines of 'key: value', got 'seed'"},
      {"? [a]\n: 1\n", "c.yaml:1:3: expected lines of 'key: value', got a list"},
      {"seed: 1\n---\nseed: 2\n", "c.yaml:2:1: a configuration is one YAML document; remove what follows the first"},
      {"device: \"cpu\nseed: 1\n", "c.yaml:1:9: the closing quote is missing on this line"},
      {"\"a\\nb\": 1\n", "c.yaml:1:1: unknown key 'a\\nb'; --help lists all keys"},
  };
  for (const auto& [yaml, fault] : cases) EXPECT_EQ(yaml_fault(yaml), fault) << yaml;
}

TEST(Yaml, ATimeHasAUnit) {
  const auto seconds = [](const std::string& value) {
    return from_yaml("training:\n  " + value + "\n").training.schedule.max_time.seconds;
  };
  EXPECT_EQ(seconds("max_time: 90 seconds"), 90);
  EXPECT_EQ(seconds("max_time: 1 minute"), 60);
  EXPECT_EQ(seconds("max_time: 1.5 hours"), 5400);
  EXPECT_EQ(seconds("max_time: 2 days"), 172800);
  EXPECT_EQ(seconds("max_time: none"), 0);
  EXPECT_EQ(seconds("max_minutes: 2.5"), 150) << "the name has the unit";
  EXPECT_EQ(seconds("max_hours: 3"), 10800);
}

TEST(Yaml, AnIntervalMayBeAShareOfTheRun) {
  const Config c = from_yaml("training:\n  eval_interval: 10 %\n  sample_interval: 50%\n");
  EXPECT_EQ(c.training.cadence.eval_interval, (Interval{10, Interval::Unit::percent}));
  EXPECT_EQ(c.training.cadence.sample_interval, (Interval{50, Interval::Unit::percent}));
}

TEST(Yaml, ASectionMayBeWrittenBeforeItsKey) {
  const Config c = from_yaml("training.batch_size: 3\ndata.stages: [{from: 0}]\nmodel:\n  bias: true\n");
  EXPECT_EQ(c.training.batch_size, 3);
  EXPECT_EQ(c.data.stages.size(), 1u);
  EXPECT_EQ(yaml_fault("training.batch_size: 3\ntraining:\n  batch_size: 4\n"),
            "c.yaml:3:3: 'training.batch_size' is already set at c.yaml:1:1; keep one");
  EXPECT_EQ(yaml_fault("training.btach_size: 3\n"),
            "c.yaml:1:1: unknown key 'training.btach_size'; did you mean 'training.batch_size'?");
}

TEST(Yaml, ASectionWithoutKeysEndsWhereTheNextLineBegins) {
  EXPECT_EQ(from_yaml("model:\n  # n_head: 3\nseed: 3\n").seed, 3);
}

TEST(Yaml, ResolvesAnchorsOfPlainValues) {
  const Config c = from_yaml("seed: &s 12\nthreads: *s\n");
  EXPECT_EQ(c.threads, 12);
  EXPECT_EQ(yaml_fault("model: &m {bias: true}\ndata: *m\n"),
            "c.yaml:2:7: a YAML alias can only stand for a single value");
  EXPECT_NE(yaml_fault("output_dir: &s \"12\"\nthreads: *s\n").find("as text"), std::string::npos);
}

// Each of these crashed, hung or was swallowed by some YAML reader.
TEST(Yaml, RefusesHostileInput) {
  const auto repeat = [](const std::string& part, int times) {
    std::string result;
    while (times-- > 0) result += part;
    return result;
  };
  for (const char* part :
       {"[", "{", "- ", "? ", "{a: ", "&a ", ",", "[],", "!", "a: ", "---\n", "*a ", "\"", ": ", "{a: b},"}) {
    EXPECT_NE(yaml_fault(repeat(part, 30000)), "no fault") << part;
  }
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += std::string(i, ' ') + "a:\n";
  EXPECT_NE(yaml_fault(deep), "no fault");
  EXPECT_EQ(yaml_fault(std::string("seed: 1\0", 8)), "c.yaml: not a text file; a configuration is YAML in UTF-8");
  EXPECT_EQ(yaml_fault(std::string(2 << 20, '#')), "c.yaml: 2097152 bytes is too large for a configuration");
}

TEST(Yaml, AMessageQuotesNoMoreThanABeginningOnOneLine) {
  const std::string long_text(5000, 'x'), long_key(1000, 'x'), zeros(5000, '0');
  for (const std::string& yaml : {
           "seed: " + long_text,
           "seed: \"" + zeros + "1\"",
           "use_gpu: \"" + long_text + "\"",
           "device: " + long_text,
           long_key + ": 1",
           long_text + "_1",
           "[" + long_text + "]",
           "model: {" + long_key + ": 1}",
           "data: {dataset: " + long_text + "}",
           "data: {stages: [{" + long_key + ": 1}]}",
           "data: {stages: [{from: " + long_text + "}]}",
           "data: {stages: [{from: 0, mix: {" + long_key + ": none}}]}",
           "data: {stages: [{from: 0, mix: {" + long_key + ": {}}}]}",
           "data: {stages: [{from: 0, mix: {a: 1, " + long_key + ": 1e-6}}]}",
           std::string("data: {stages: [{from: 0, mix: {\"two\\nlines\": none}}]}"),
           "training: {eval_interval: " + long_text + "}",
       }) {
    const std::string fault = yaml_fault(yaml + "\n");
    EXPECT_NE(fault, "no fault") << yaml;
    EXPECT_LT(fault.size(), 400u) << fault;
  }
}

TEST(Yaml, EveryAliasMeansItsKey) {
  Config defaults;
  int aliases = 0;
  for (const Option& row : options(defaults)) {
    for (const Alias& alias : row.aliases) {
      ++aliases;
      const std::string indent = row.section.empty() ? "" : row.section + ":\n  ";
      // An impossible value must be refused under the name of the key itself; rows of text and of words take any.
      const bool takes_any =
          std::holds_alternative<std::string*>(row.target) || row.key() == "training.lora_also_train";
      if (takes_any && !alias.is_switch()) {
        Config by_alias = from_yaml(indent + alias.name + ": xyz\n"), by_key = from_yaml(indent + row.name + ": xyz\n");
        EXPECT_EQ(dump(by_alias), dump(by_key)) << alias.name;
      } else {
        const std::string name = alias.is_switch() ? alias.name : row.key();
        EXPECT_NE(yaml_fault(indent + alias.name + ": !!x y\n").find("'" + name + "' must be"), std::string::npos)
            << alias.name;
      }
    }
  }
  EXPECT_GE(aliases, 20);
}

TEST(Yaml, TakesTheSpellingsOfOtherDocuments) {
  const Config c = from_yaml(R"(
use_gpu: false
out_dir: o
model: {seq_length: 32, d_model: 48, n_layers: 2, n_heads: 3, d_hid: 99}
data: {bin_file: b, tokenizer_file: t, metadata_file: m}
training: {max_norm: 0.5, accumulate_grad_batches: 4, compile: false, use_activation_checkpointing: true, use_lr_scheduler: false}
)");
  EXPECT_EQ(c.device, "cpu");
  EXPECT_EQ(c.output_dir, "o");
  EXPECT_EQ(c.model.block_size, 32);
  EXPECT_EQ(c.model.n_embd, 48);
  EXPECT_EQ(c.model.n_layer, 2);
  EXPECT_EQ(c.model.n_head, 3);
  EXPECT_EQ(c.model.n_hidden, 99);
  EXPECT_EQ(c.data.bin, "b");
  EXPECT_EQ(c.data.tokenizer, "t");
  EXPECT_EQ(c.data.metadata, "m");
  EXPECT_EQ(c.training.optimizer.gradient_clip, 0.5);
  EXPECT_EQ(c.training.gradient_accumulation_steps, 4);
  EXPECT_FALSE(c.training.execution.use_compile);
  EXPECT_EQ(c.training.execution.gradient_checkpointing, GradientCheckpointing::block);
  EXPECT_EQ(c.training.schedule.lr_schedule, LrSchedule::constant);
  EXPECT_EQ(from_yaml("use_gpu: true\n").device, "auto");
  using enum GradientCheckpointing;
  for (const auto& [text, level] :
       {std::pair("true", block), {"false", none}, {"selective", selective}, {"'norm'", norm}}) {
    const std::string key = "training: {gradient_checkpointing: " + std::string(text) + "}\n";
    EXPECT_EQ(from_yaml(key).training.execution.gradient_checkpointing, level) << text;
  }
  EXPECT_EQ(from_yaml("training: {use_activation_checkpointing: false}\n").training.execution.gradient_checkpointing,
            none);
  EXPECT_EQ(from_yaml("training: {grad_clip: 0.25}\n").training.optimizer.gradient_clip, 0.25);
  EXPECT_FALSE(from_yaml("training: {use_torch_compile: false}\n").training.execution.use_compile);
  EXPECT_EQ(from_yaml("training: {use_lr_scheduler: true}\n").training.schedule.lr_schedule, LrSchedule::cosine);
  EXPECT_EQ(from_yaml("model: {model_size: gpt2_medium}\n").model.preset, Preset::gpt2_medium);
  EXPECT_EQ(from_yaml("data: {data_path: x.txt}\n").data.text, "x.txt");
  EXPECT_EQ(yaml_fault("use_gpu: maybe\n"), "c.yaml:1:10: 'use_gpu' must be true or false, got 'maybe'");
}

TEST(Yaml, KeysWrittenOutBeatThePreset) {
  const Config c = from_yaml("model:\n  n_embd: 24\n  bias: false\n  preset: gpt2_small\n");
  EXPECT_EQ(c.model.n_layer, 12);
  EXPECT_EQ(c.model.n_embd, 24);
  EXPECT_EQ(c.model.mlp, Mlp::gelu);
  EXPECT_FALSE(c.model.bias);
}

TEST(Yaml, ACommandIsItsWordsAsTheyAre) {
  using Words = std::vector<std::string>;
  const auto command = [](const std::string& yaml) {
    return from_yaml("training:\n  on_event: " + yaml + "\n").training.on_event;
  };
  const Words all = {"curl", "-d", "@-", "a, b  c", "", "https://ntfy.sh/x"};
  EXPECT_EQ(command("[curl, -d, \"@-\", \"a, b  c\", '', https://ntfy.sh/x]"), all);
  EXPECT_EQ(command("notify-send  'a, b'"), (Words{"notify-send", "'a,", "b'"})) << "no shell reads it";
  EXPECT_EQ(command("[]"), Words());
  EXPECT_EQ(command("''"), Words());
  Config config;
  config.training.on_event = all;
  EXPECT_EQ(from_yaml(dump(config)).training.on_event, all);
  EXPECT_EQ(
      yaml_fault("training: {on_event: [sh, [-c]]}\n"),
      "c.yaml:1:27: must be a program and its arguments, like [curl, -d, \"@-\", URL], got a list or a map as one of "
      "them");
  EXPECT_EQ(yaml_fault("training: {on_event: ['', x]}\n"), "c.yaml:1:22: must begin with a program, got an empty text");
}

}  // namespace
}  // namespace gpt::config
