#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "config/faults.h"
#include "core/scratch_folder.h"
#include "gpt/config/option.h"
#include "support/captured_output.h"

namespace gpt::config {
namespace {

CommandLine parse_line(std::vector<const char*> arguments, const std::vector<Option>& program_rows = {}) {
  arguments.insert(arguments.begin(), "gpt-train");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), "gpt-train", "Trains.", program_rows);
}

std::string fault_of_line(std::vector<const char*> arguments) {
  return fault_of([&] { parse_line(arguments); });
}

std::string output(std::vector<const char*> arguments) {
  bool handled = false;
  test::CapturedOutput printed;
  const std::string message = fault_of([&] { handled = parse_line(arguments).handled; });
  const std::string text = printed.text();
  EXPECT_TRUE(handled) << message;
  return text;
}

// A YAML file for the life of the object.
class File {
 public:
  explicit File(const std::string& text) : path_(folder_ / "command_line_test.yaml") { std::ofstream(path_) << text; }
  const char* path() const { return path_.c_str(); }

 private:
  ScratchFolder folder_;  // this process's alone: tests run beside each other
  std::string path_;
};

TEST(CommandLine, TakesEverySpellingOfAFlag) {
  for (const char* flag : {"--batch_size", "--batch-size", "--training.batch_size", "--training.batch-size"}) {
    EXPECT_EQ(parse_line({flag, "3"}).config.training.batch_size, 3) << flag;
    EXPECT_EQ(parse_line({(std::string(flag) + "=3").c_str()}).config.training.batch_size, 3) << flag;
  }
  EXPECT_EQ(parse_line({"--seed", "3"}).config.seed, 3);
}

TEST(CommandLine, EveryKeyAndAliasIsAFlagAndUnique) {
  Config defaults;
  std::set<std::string> names = {"config",       "config_path",     "help",           "version",
                                 "print-config", "print-reference", "print-man-page", "manual"};
  for (const Option& row : options(defaults)) {
    std::vector<std::string> spellings = {row.flag()};
    for (const Alias& alias : row.aliases) spellings.push_back(alias.name);
    for (const std::string& name : spellings) {
      EXPECT_TRUE(names.insert(name).second) << name << " stands for two keys";
      const bool translates = std::any_of(row.aliases.begin(), row.aliases.end(),
                                          [&](const Alias& alias) { return alias.name == name && alias.is_switch(); });
      const std::string message = fault_of_line({("--" + name + "=impossible").c_str()});
      // Rows of text and of words take any value; the others refuse this one under their key's name.
      const bool takes_any = std::holds_alternative<std::string*>(row.target) || row.key() == "training.freeze" ||
                             row.key() == "training.lora_targets" || row.key() == "training.lora_also_train" ||
                             row.key() == "training.eval_tasks" || row.key() == "training.on_event";
      if (translates || !takes_any) {
        EXPECT_NE(message.find(translates ? name : row.key()), std::string::npos) << name << ": " << message;
        EXPECT_NE(message.find(" must be"), std::string::npos) << name << ": " << message;
      } else {
        EXPECT_EQ(message.find("unknown"), std::string::npos) << name << ": " << message;
      }
    }
  }
}

TEST(CommandLine, TakesTheSpellingsOfOtherDocuments) {
  EXPECT_EQ(parse_line({"--data", "x.txt"}).config.data.text, "x.txt");
  EXPECT_EQ(parse_line({"--data_path", "x.txt"}).config.data.text, "x.txt");
  EXPECT_EQ(parse_line({"--dataset", "shakespeare"}).config.data.dataset, DatasetName::shakespeare);
  EXPECT_EQ(parse_line({"--model_size", "gpt2_xl"}).config.model.n_embd, 1600);
  EXPECT_EQ(parse_line({"--use_gpu", "false"}).config.device, "cpu");
  EXPECT_EQ(parse_line({"--use-gpu"}).config.device, "auto");
  EXPECT_EQ(parse_line({"--use_lr_scheduler=false"}).config.training.schedule.lr_schedule, LrSchedule::constant);
  const File file("seed: 5\n");
  for (const char* flag : {"--config", "--config_path", "--config-path"})
    EXPECT_EQ(parse_line({flag, file.path()}).config.seed, 5) << flag;
}

TEST(CommandLine, SwitchesTakeAnOptionalValue) {
  EXPECT_TRUE(parse_line({"--bias"}).config.model.bias);
  EXPECT_TRUE(parse_line({"--bias", "true"}).config.model.bias);
  EXPECT_TRUE(parse_line({"--bias", "--seed", "1"}).config.model.bias);
  EXPECT_FALSE(parse_line({"--use_amp", "false"}).config.training.precision.use_amp);
  EXPECT_FALSE(parse_line({"--use-amp=false"}).config.training.precision.use_amp);
  EXPECT_FALSE(parse_line({"--use_amp", "No"}).config.training.precision.use_amp);
  EXPECT_EQ(parse_line({"--use_gpu", "NO"}).config.device, "cpu");
  EXPECT_EQ(fault_of_line({"--use_amp", "0"}), "--training.use_amp must be true or false, got '0'; write false");
  EXPECT_EQ(fault_of_line({"--use_amp="}), "--training.use_amp must be true or false, got ''");
  // A choice that is a switch too.
  using enum GradientCheckpointing;
  const auto level = [](const std::vector<const char*>& words) {
    return parse_line(words).config.training.execution.gradient_checkpointing;
  };
  EXPECT_EQ(level({"--gradient_checkpointing"}), block);
  EXPECT_EQ(level({"--gradient_checkpointing", "--seed", "1"}), block);
  EXPECT_EQ(level({"--gradient-checkpointing=no"}), none);
  EXPECT_EQ(level({"--gradient_checkpointing", "selective"}), selective);
  EXPECT_EQ(level({"--use_activation_checkpointing"}), block);
  EXPECT_EQ(
      fault_of_line({"--gradient_checkpointing", "blocks"}),
      "--training.gradient_checkpointing must be one of none, activation, norm, selective, block, got 'blocks'; did you "
      "mean 'block'?");
}

TEST(CommandLine, TextComesThroughUnchanged) {
  for (const char* text : {"", " ", "[a,b]", "--x", "-1", "a=b", "\n", "{}", "\"q\"", "%%", "a b"}) {
    EXPECT_EQ(parse_line({"--sample_prompt", text, "--seed", "9"}).config.training.cadence.sample_prompt, text);
    const std::string joined = std::string("--sample_prompt=") + text;
    EXPECT_EQ(parse_line({joined.c_str(), "--seed", "9"}).config.training.cadence.sample_prompt, text);
    EXPECT_EQ(parse_line({joined.c_str(), "--seed", "9"}).config.seed, 9);
  }
}

TEST(CommandLine, FlagsBeatTheFileAndKeysBeatThePreset) {
  const File file("seed: 5\nmodel:\n  preset: gpt2_large\n  n_embd: 1920\ntraining:\n  batch_size: 2\n");
  const Config c = parse_line({"--n_head", "30", "--config", file.path(), "--batch_size", "3", "--preset",
                               "gpt2_medium", "--n_embd", "1920"})
                       .config;
  EXPECT_EQ(c.seed, 5);
  EXPECT_EQ(c.training.batch_size, 3);
  EXPECT_EQ(c.model.n_layer, 24);
  EXPECT_EQ(c.model.n_embd, 1920);
  EXPECT_EQ(c.model.n_head, 30);
  EXPECT_EQ(c.model.mlp, Mlp::gelu);
  EXPECT_EQ(parse_line({"--config", file.path(), "--preset", "none", "--n_embd", "6", "--position", "learned"})
                .config.model.n_layer,
            6);
}

TEST(CommandLine, AFlagReplacesTheFilesChoiceOfDataAndLength) {
  const File file("data:\n  bin: b\n  metadata: m\n  num_workers: 3\ntraining:\n  epochs: 2\n");
  const Config c = parse_line({"--config", file.path(), "--data", "x.txt", "--max_steps", "7"}).config;
  EXPECT_EQ(c.data.text, "x.txt");
  EXPECT_EQ(c.data.bin, "");
  EXPECT_EQ(c.data.metadata, "");
  EXPECT_EQ(c.data.num_workers, 3);
  EXPECT_EQ(c.training.schedule.max_steps, 7);
  EXPECT_EQ(c.training.schedule.epochs, std::nullopt);
  EXPECT_EQ(parse_line({"--config", file.path(), "--metadata", "n"}).config.data.bin, "b");
  EXPECT_EQ(fault_of_line({"--epochs", "1", "--max_steps", "7"}),
            "--training.max_steps: epochs 1 and max_steps 7 both set the length of the run; keep one");
}

TEST(CommandLine, AFlagForTheBatchReplacesWhatFollowedFromTheFilesOwn) {
  // As a run writes its effective_config.yaml.
  const File file("training: {batch_size: 8, gradient_accumulation_steps: 4, total_batch_size: 32}\n");
  const auto micro_steps = [&](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"--config", file.path()});
    return parse_line(flags).config.training.gradient_accumulation_steps;
  };
  EXPECT_EQ(micro_steps({}), 4);
  EXPECT_EQ(micro_steps({"--batch_size", "2"}), 16);
  EXPECT_EQ(micro_steps({"--total_batch_size", "64"}), 8);
  EXPECT_EQ(micro_steps({"--gradient_accumulation_steps", "3"}), 3);
  EXPECT_EQ(parse_line({"--config", file.path(), "--batch_size", "auto"}).config.training.batch_size, 0);
  const File product("training: {batch_size: 8, gradient_accumulation_steps: 4, total_batch_size: auto}\n");
  EXPECT_EQ(parse_line({"--config", product.path(), "--batch_size", "2"}).config.training.gradient_accumulation_steps,
            4);
  EXPECT_EQ(
      fault_of_line({"--config", file.path(), "--batch_size", "3"}),
      "--training.batch_size: total_batch_size 32 is not divisible by batch_size 3; set total_batch_size to 30 or 33, or batch_size to 2 or 4");
}

TEST(CommandLine, FaultsNameTheFlag) {
  EXPECT_EQ(fault_of_line({"--lerning_rate", "1"}), "unknown flag '--lerning_rate'; did you mean '--learning_rate'?");
  EXPECT_EQ(fault_of_line({"--lerning-rate=1"}), "unknown flag '--lerning-rate'; did you mean '--learning_rate'?");
  EXPECT_EQ(fault_of_line({"--training.lerning_rate", "1"}),
            "unknown flag '--training.lerning_rate'; did you mean '--training.learning_rate'?");
  EXPECT_EQ(fault_of_line({"--learning_rate", "0"}), "--training.learning_rate must be above 0, got 0");
  EXPECT_EQ(fault_of_line({"--device", "tpu"}), "--device must be auto, cpu, cuda or cuda:N, got 'tpu'");
  EXPECT_EQ(fault_of_line({"--model.batch_size", "3"}),
            "unknown flag '--model.batch_size'; did you mean '--training.batch_size'?");
  EXPECT_EQ(fault_of_line({"--data.lr", "3"}), "unknown flag '--data.lr'; did you mean '--training.learning_rate'?");
  EXPECT_EQ(fault_of_line({"--cofnig", "x"}), "unknown flag '--cofnig'; did you mean '--config'?");
  EXPECT_EQ(fault_of_line({"--zzzzzzzzzz"}), "unknown flag '--zzzzzzzzzz'; --help lists all flags");
  EXPECT_EQ(fault_of_line({"-z"}), "unknown flag '-z'; --help lists all flags");
  EXPECT_EQ(fault_of_line({"x.yaml"}),
            "unexpected argument 'x.yaml'; a value must follow its flag, and a value with spaces needs quotes");
  EXPECT_EQ(fault_of_line({"--seed", "1", "2"}),
            "unexpected argument '2' after '--seed 1'; a flag takes one value, and a value with spaces needs quotes");
  EXPECT_EQ(fault_of_line({"--lr"}), "--lr needs a value");
  EXPECT_EQ(fault_of_line({"--seed", "1", "--config"}), "--config needs a value");
  EXPECT_EQ(fault_of_line({"--lr="}), "--lr: 'training.learning_rate' must be auto or a number from 0 to 10, got ''");
  EXPECT_EQ(fault_of_line({"--lr", "x"}),
            "--lr: 'training.learning_rate' must be auto or a number from 0 to 10, got 'x'");
  EXPECT_EQ(fault_of_line({"--n_embd", "100", "--n_head", "6"}),
            "--model.n_embd: n_embd 100 is not divisible by n_head 6; set n_embd to 96 or 102, or n_head to 5 or 10");
  const File file("model:\n  n_embd: 96\n");
  EXPECT_EQ(fault_of_line({"--config", file.path(), "--n_head", "5"}),
            "--model.n_head: n_embd 96 is not divisible by n_head 5; set n_embd to 95 or 100, or n_head to 4 or 6");
}

CommandLine line_of(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gpt-train");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), "gpt-train", "");
}

TEST(CommandLine, TheLastValueOfAFlagCountsAndANoteSaysSo) {
  const CommandLine line = line_of({"--seed", "1", "--lr", "1e-3", "--seed", "2", "--learning_rate", "1e-4"});
  EXPECT_EQ(line.config.seed, 2);
  EXPECT_EQ(line.config.training.schedule.learning_rate, 1e-4);
  EXPECT_EQ(line.notes, (std::vector<std::string>{"--seed is given again: 2 counts, not 1",
                                                  "--training.learning_rate 1e-4 counts, not --lr 1e-3 before it"}));
  EXPECT_EQ(line_of({"--seed", "2", "--seed", "2"}).notes, std::vector<std::string>{});
}

TEST(CommandLine, APresetOnTheCommandLineReplacesTheSizesOfTheFile) {
  const File file("model:\n  n_layer: 3\n  n_embd: 96\n  dropout: 0.3\n  bias: false\n");
  const CommandLine line = line_of({"--config", file.path(), "--preset", "gpt2_small"});
  EXPECT_EQ(line.config.model.n_layer, 12);
  EXPECT_EQ(line.config.model.n_embd, 768);
  EXPECT_TRUE(line.config.model.bias);
  EXPECT_EQ(line.config.model.dropout, 0.3);  // no preset says anything of it
  EXPECT_EQ(line.notes,
            std::vector<std::string>{
                "--model.preset gpt2_small takes the place of the file's model.n_layer, model.n_embd, model.bias"});
  EXPECT_EQ(line_of({"--config", file.path(), "--preset", "char_small", "--n_layer", "2"}).config.model.n_layer, 2);
  EXPECT_EQ(line_of({"--config", file.path(), "--preset", "auto"}).config.model.n_layer, 3);
}

// What the presets set is named twice in the code.
TEST(CommandLine, KeysOfAPresetAreThoseThatItSets) {
  for (const char* preset : {"gpt2_small", "char_small"}) {
    Config other;  // in which every key differs from what presets set
    other.model.n_layer = 1, other.model.n_embd = 8, other.model.block_size = 8, other.model.n_head = 1;
    other.model.n_kv_head = 1, other.model.n_head_dim = 1, other.model.n_hidden = 1, other.model.norm = Norm::rmsnorm;
    other.model.norm_eps = 1, other.model.mlp = Mlp::swiglu, other.model.position = Position::rope;
    other.model.bias = other.model.tie_weights = false;
    other.model.preset = preset == std::string("char_small") ? Preset::char_small : Preset::gpt2_small;
    Config set = other;
    apply_preset(set.model);
    std::vector<std::string> keys;
    for (const Change& change : difference(other, set)) keys.push_back(change.key);
    std::vector<std::string> named = keys_of_preset(preset);
    std::sort(keys.begin(), keys.end()), std::sort(named.begin(), named.end());
    EXPECT_EQ(named, keys) << preset;
  }
}

TEST(CommandLine, AMisspeltConfigurationIsGuessed) {
  const ScratchFolder folder;
  const std::string config = folder.file("small.yaml", "seed: 1\n");
  const std::string typed = folder / "smal.yaml";
  EXPECT_EQ(fault_of_line({"--config", typed.c_str()}),
            "cannot read " + typed + ": No such file or directory; did you mean " + config + "?");
}

TEST(CommandLine, WordsWithoutAFlagAreFilesOrPatternsOfTheShell) {
  const ScratchFolder folder;
  const std::string a = folder.file("a.txt", "a"), b = folder.file("b.txt", "b"), c = folder.file("c.txt", "c");
  const std::string config = folder.file("c.yaml", "seed: 1\n");
  EXPECT_EQ(fault_of_line({"--data", a.c_str(), b.c_str(), c.c_str(), "--seed", "1"}),
            "--data takes one value, but 3 files follow it ('" + a + "', '" + b +
                "', ...); if the shell expanded a pattern, put the pattern in quotes: --data '" + folder / "*.txt" +
                "'");
  EXPECT_EQ(fault_of_line({"--data", a.c_str(), config.c_str()}),
            "--data takes one value, but 2 files follow it ('" + a + "', '" + config +
                "'); if the shell expanded a pattern, put the pattern in quotes: --data '" + folder / "*" + "'");
  EXPECT_EQ(fault_of_line({config.c_str()}),
            "'" + config + "' has no flag before it; did you mean --config " + config + "?");
  EXPECT_EQ(fault_of_line({"--bias", "true", a.c_str(), b.c_str()}),
            "unexpected argument '" + a +
                "' after '--bias true'; a flag takes one value, and a value with spaces needs quotes");
  EXPECT_EQ(fault_of_line({a.c_str(), b.c_str()}),
            "'" + a + "' has no flag before it; did you mean --data '" + folder / "*.txt" + "', with the quotes?");
  EXPECT_EQ(
      fault_of_line({"--checkpoint_interval", "10", "minutes"}),
      "unexpected argument 'minutes' after '--checkpoint_interval 10'; a flag takes one value, and a value with spaces "
      "needs quotes");
  EXPECT_EQ(fault_of_line({"--print-config", "x"}),
            "unexpected argument 'x'; a value must follow its flag, and a value with spaces needs quotes");
}

TEST(CommandLine, RefusesWhatIsNoConfiguration) {
  EXPECT_NE(fault_of_line({"--config", "/nonexistent/x.yaml"}).find("/nonexistent/x.yaml"), std::string::npos);
  EXPECT_NE(fault_of_line({"--config", "/tmp"}).find("/tmp"), std::string::npos);
  EXPECT_NE(fault_of_line({"--config", ""}), "no fault");
  const File binary(
      std::string("\x7f"
                  "ELF\0\0\1",
                  7));
  EXPECT_EQ(fault_of_line({"--config", binary.path()}),
            std::string(binary.path()) + ": not a text file; a configuration is YAML in UTF-8");
}

TEST(CommandLine, FilesOfAnotherKindAreSentToTheirOwnFlag) {
  const ScratchFolder folder;
  const std::string text = folder.file("my text.txt", "ROMEO: Hello.\n");
  EXPECT_TRUE(fault_of_line({"--config", text.c_str()})
                  .ends_with("; --config takes YAML: train on a text with --data " + text));
  const std::string bin = folder.file("a.bin", std::string(4, '\0'));
  EXPECT_TRUE(fault_of_line({"--config", bin.c_str()}).ends_with("train on token ids with --bin " + bin));
  EXPECT_EQ(
      fault_of_line({"--data", "a.bin"}),
      "--data: by its name 'a.bin' holds token ids; if so, write --bin a.bin, and otherwise give it another name");
  EXPECT_EQ(
      fault_of_line({"--data", "c.yaml"}),
      "--data: by its name 'c.yaml' is a configuration; if so, write --config c.yaml, and otherwise give it another name");
  EXPECT_NE(fault_of_line({"--data", "models/a/ckpt.pt"}).find("write --init_from models/a/ckpt.pt"),
            std::string::npos);
  EXPECT_NE(fault_of_line({"--bin", "a.txt"}).find("write --data a.txt"), std::string::npos);
}

TEST(CommandLine, ATildeIsTheHomeFolderInEveryPath) {
  const std::string home = getenv("HOME") ? getenv("HOME") : "";
  setenv("HOME", "/h", /*overwrite=*/1);
  Config defaults;
  for (const Option& row : options(defaults)) {
    if (!row.is_path) continue;
    const std::string value = row.name == "resume_from" ? "~/x.pt" : "~/x";
    const std::string flag = "--" + row.name + "=" + value;
    const bool needs_bin = row.name == "validation_bin" || row.name == "metadata";
    Config config = parse_line({flag.c_str(), needs_bin ? "--bin=b" : "--seed=1"}).config;
    for (const Option& set : options(config)) {
      if (set.key() != row.key()) continue;
      EXPECT_EQ(*std::get<std::string*>(set.target), "/h" + value.substr(1)) << row.key();
    }
  }
  EXPECT_EQ(from_yaml("output_dir: ~/a\ndata: {stages: [{from: 0, mix: {~/b.txt: 1}}]}\n").output_dir, "/h/a");
  EXPECT_EQ(from_yaml("data: {stages: [{from: 0, mix: {~/b.txt: 1}}]}\n").data.stages[0].mix[0].first, "/h/b.txt");
  EXPECT_EQ(parse_line({"--sample_prompt=~/x"}).config.training.cadence.sample_prompt, "~/x") << "no path";
  EXPECT_EQ(
      fault_of_line({"--output_dir=~nobody-of-that-name/x"}),
      "--output_dir: '~nobody-of-that-name/x' begins with the home folder of nobody-of-that-name, but there is no such "
      "user; write './~nobody-of-that-name/x' for a file of that name");
  setenv("HOME", home.c_str(), /*overwrite=*/1);
}

TEST(CommandLine, HeadsFollowFromTheWidth) {
  const auto heads = [](std::vector<const char*> arguments) {
    return parse_line(std::move(arguments)).config.model.n_head;
  };
  EXPECT_EQ(heads({"--d_model", "1024", "--n_layers", "24"}), 16);
  EXPECT_EQ(heads({"--n_embd", "100"}), 2);
  EXPECT_EQ(heads({"--n_embd", "96", "--n_head", "auto"}), 2);
  EXPECT_EQ(heads({"--n_embd", "96", "--n_head", "4"}), 4);
  EXPECT_EQ(heads({"--preset", "gpt2_small", "--n_embd", "1024"}), 16);
}

TEST(CommandLine, WhatIsDeniedIsSetToFalse) {
  EXPECT_EQ(fault_of_line({"--no-bias"}), "unknown flag '--no-bias'; write --bias false");
  EXPECT_EQ(fault_of_line({"--no_compile"}), "unknown flag '--no_compile'; write --compile false");
  EXPECT_EQ(fault_of_line({"--no-gradient-checkpointing"}),
            "unknown flag '--no-gradient-checkpointing'; write --gradient_checkpointing false");
  EXPECT_EQ(fault_of_line({"--no-use-gpu"}), "unknown flag '--no-use-gpu'; write --use_gpu false");
  EXPECT_NE(fault_of_line({"--no-dropout"}), "unknown flag '--no-dropout'; write --dropout false");
}

TEST(CommandLine, AFlagForWhereTheRunBeginsReplacesThatOfTheFile) {
  const File file("training: {init_from: /a/ckpt.pt}\n");
  EXPECT_EQ(parse_line({"--config", file.path(), "--resume_from", "b"}).config.training.init_from, "");
  EXPECT_EQ(parse_line({"--config", file.path(), "--resume_from", "none"}).config.training.init_from, "/a/ckpt.pt");
}

TEST(CommandLine, HelpShowsEveryKeyOnceInItsSection) {
  const std::string text = output({"--help"});
  EXPECT_EQ(output({"-h", "--unknown"}), text);
  Config defaults;
  size_t last = 0;
  for (const Option& row : options(defaults)) {
    const size_t at = text.find("\n  --" + row.flag() + " ");
    ASSERT_NE(at, std::string::npos) << row.key();
    EXPECT_GT(at, last) << row.key();
    last = at;
    for (const Alias& alias : row.aliases) EXPECT_NE(text.find(alias.name, at), std::string::npos) << alias.name;
  }
  for (size_t start = 0; start < text.size(); start = text.find('\n', start) + 1) {
    EXPECT_LE(text.find('\n', start) - start, 80) << text.substr(start, 120);
  }
}

TEST(CommandLine, PrintsTheEffectiveConfiguration) {
  const std::string text = output({"--print-config", "--preset", "gpt2_small", "--lr", "0.5"});
  const Config c = from_yaml(text);
  EXPECT_EQ(c.model.n_embd, 768);
  EXPECT_EQ(c.training.schedule.learning_rate, 0.5);
  EXPECT_NE(fault_of_line({"--print-config", "--n_head", "5"}), "no fault");
  EXPECT_FALSE(parse_line({"--lr", "0.5"}).handled);
}

TEST(CommandLine, PrintsVersionAndReference) {
  EXPECT_NE(output({"--version"}).find("LibTorch"), std::string::npos);
  EXPECT_EQ(output({"--print-reference"}), reference_markdown());
}

TEST(CommandLine, ProgramsAddTheirOwnFlags) {
  bool json = false;
  std::string file;
  const std::vector<Option> rows = {switch_row("json", json, "print JSON"),
                                    {.name = "report_file", .target = &file, .help = "where to"}};
  EXPECT_TRUE(
      parse_line({"--json", "--report-file", "x"}, rows).origins.empty());  // they are no part of the configuration
  EXPECT_TRUE(json);
  EXPECT_EQ(file, "x");
}

TEST(CommandLine, AProgramsOwnFlagHidesTheShortNameOfAKey) {
  int64_t epochs = 0;
  const std::vector<Option> rows = {{.name = "epochs", .target = &epochs, .help = "of the program"}};
  EXPECT_EQ(parse_line({"--epochs", "7", "--training.epochs", "3"}, rows).config.training.schedule.epochs, 3);
  EXPECT_EQ(epochs, 7);
  EXPECT_EQ(parse_line({"--num-epochs=4"}, rows).config.training.schedule.epochs, 4);
}

TEST(CommandLine, AFileThatIsTooLargeIsNotRead) {
  const File large(std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(fault_of_line({"--config", large.path()}),
            std::string("cannot read ") + large.path() +
                ": it has 1,048,577 bytes; a configuration has at most 1,048,576");
}

TEST(CommandLine, AConfigurationThatCouldNotBeReadAgainIsRefused) {
  const std::string path(1 << 20, 'x');
  const std::string message = fault_of_line({"--data.text", path.c_str()});
  EXPECT_EQ(message.find("gpt-train: written out, the configuration has 2,1"), 0u) << message;
}

}  // namespace
}  // namespace gpt::config
