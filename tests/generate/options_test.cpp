#include "gpt/generate/options.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::generate {
namespace {

GenerateOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gpt-generate");
  return parse_generate_options(static_cast<int>(arguments.size()), arguments.data()).value();
}

// The message of the gpt::Error(config) that `arguments` cause.
std::string refusal(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::config) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(GenerateOptions, WithoutARunThereIsNoCheckpoint) {
  const ScratchFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const GenerateOptions options = parse({});
  std::filesystem::current_path(before);
  EXPECT_EQ(options.model.checkpoint, "");
}

TEST(GenerateOptions, DefaultsAreTheStructs) {
  const GenerateOptions options = parse({});
  const SamplingConfig defaults;
  EXPECT_FALSE(options.prompt.has_value());
  EXPECT_EQ(options.sampling.temperature, defaults.temperature);
  EXPECT_EQ(options.sampling.max_new_tokens, defaults.max_new_tokens);
  EXPECT_EQ(options.num_samples, 1);
  EXPECT_EQ(options.model.dtype, WeightType());
  EXPECT_FALSE(options.hide_prompt);
  EXPECT_FALSE(options.raw);
  EXPECT_FALSE(options.json);
  EXPECT_EQ(options.output, "");
}

TEST(GenerateOptions, EveryFlagReachesItsField) {
  const GenerateOptions options = parse({"--checkpoint=a.pt",
                                         "--prompt=Hi there",
                                         "--temperature=0.5",
                                         "--top-k=7",
                                         "--top-p=0.25",
                                         "--seed=9223372036854775807",
                                         "--max-new-tokens=9",
                                         "--stop",
                                         "END",
                                         "--stop",
                                         "\n\n",
                                         "--num-samples=3",
                                         "--device=cpu",
                                         "--dtype=bfloat16",
                                         "--raw",
                                         "--no-display-prompt",
                                         "--min-p=0.05",
                                         "--repetition-penalty=1.2",
                                         "--json",
                                         "--output=text.txt",
                                         "--tokenizer=gpt2",
                                         "--threads=3"});
  EXPECT_EQ(options.model.checkpoint, "a.pt");
  EXPECT_EQ(options.prompt, "Hi there");
  EXPECT_EQ(options.sampling.temperature, 0.5);
  EXPECT_EQ(options.sampling.top_k, 7);
  EXPECT_EQ(options.sampling.top_p, 0.25);
  EXPECT_EQ(options.sampling.seed, 9223372036854775807u);
  EXPECT_EQ(options.sampling.max_new_tokens, 9);
  EXPECT_EQ(options.sampling.stop, (std::vector<std::string>{"END", "\n\n"}));
  EXPECT_EQ(options.num_samples, 3);
  EXPECT_EQ(options.model.device, "cpu");
  EXPECT_EQ(options.model.dtype, WeightType{Dtype::bfloat16});
  EXPECT_TRUE(options.raw);
  EXPECT_TRUE(options.hide_prompt);
  EXPECT_EQ(options.sampling.min_p, 0.05);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.2);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.output, "text.txt");
  EXPECT_EQ(options.model.tokenizer, "gpt2");
  EXPECT_EQ(options.model.threads, 3);
}

TEST(GenerateOptions, WithoutASeedEachTextHasItsOwn) {
  std::set<uint64_t> seeds;
  for (const char* seed : {"--seed=auto", "--raw", "--json"}) seeds.insert(parse({seed}).sampling.seed);
  EXPECT_EQ(seeds.size(), 3);  // equal by chance once in a billion
  for (const uint64_t seed : seeds) EXPECT_EQ(parse({"--seed", std::to_string(seed).c_str()}).sampling.seed, seed);
}

TEST(GenerateOptions, AnArgumentIsThePrompt) {
  EXPECT_EQ(parse({"Once upon a time"}).prompt, "Once upon a time");
  const GenerateOptions options = parse({"--checkpoint", "models/mine", "Once", "--seed=5"});
  EXPECT_EQ(options.prompt, "Once");
  EXPECT_EQ(options.model.checkpoint, "models/mine");
  EXPECT_EQ(options.sampling.seed, 5);
  for (const char* prompt : {"", "-", "[a,b]", "a_b", "/o", "x=1", "-5 degrees"})
    EXPECT_EQ(parse({prompt}).prompt, prompt);
  EXPECT_EQ(parse({"--raw", "--", "--a_b"}).prompt, "--a_b");  // what follows -- is no flag
  EXPECT_EQ(parse({"--stop", "a", "b"}).prompt, "b");          // a flag's value is no prompt
}

TEST(GenerateOptions, ForgottenQuotesAreShown) {
  const auto shows = [](const std::vector<const char*>& arguments, const std::string& command) {
    const std::string message = refusal(arguments);
    EXPECT_NE(message.find("quotes: " + command), std::string::npos) << message;
  };
  shows({"Once", "upon", "a", "time"}, "gpt-generate \"Once upon a time\"");
  shows({"--checkpoint", "models/mine", "Once", "upon", "--seed=5"},
        "gpt-generate --checkpoint models/mine \"Once upon\" --seed=5");
  shows({"--stop", "a b", "Once", "upon"}, "gpt-generate --stop \"a b\" \"Once upon\"");
  shows({"--stop", "\n", "Once", "upon"}, "gpt-generate --stop \" \" \"Once upon\"");  // still one line
  shows({"Once", "--raw", "upon"}, "gpt-generate \"Once upon\"");
  shows({"\"Who's", "$there?\""}, R"(gpt-generate '"Who'\''s $there?"')");
}

TEST(GenerateOptions, ACheckpointWithoutItsFlagIsNoPrompt) {
  const ScratchFolder folder;
  const std::string file = folder.file("run/ckpt.pt", ""), run = folder / "run";
  for (const std::string& path : {file, run}) {
    const std::string message = refusal({path.c_str(), "Once"});
    EXPECT_NE(message.find("write --checkpoint " + path), std::string::npos) << message;
  }
  EXPECT_EQ(parse({folder.path().c_str()}).prompt, folder.path());
  EXPECT_EQ(parse({"-p", run.c_str()}).prompt, run);
  const std::string long_one(5000, 'a');  // too long for a path
  EXPECT_EQ(parse({long_one.c_str()}).prompt, long_one);
}

TEST(GenerateOptions, SpellingsAreAlike) {
  for (const char* flag : {"--max-new-tokens", "--max_new_tokens", "--max-tokens", "--max_tokens", "-n"}) {
    EXPECT_EQ(parse({flag, "5"}).sampling.max_new_tokens, 5) << flag;
  }
  EXPECT_EQ(parse({"--top_p=0.5"}).sampling.top_p, 0.5);
  EXPECT_EQ(parse({"--prompt=--a_b"}).prompt, "--a_b");  // only names are respelled
  EXPECT_EQ(parse({"--prompt", "--top_p", "--stop", "-n"}).prompt, "--top_p");
  EXPECT_EQ(parse({"--prompt", "-"}).prompt, "-");
  EXPECT_EQ(parse({"--prompt", ""}).prompt, "");
  EXPECT_EQ(parse({"--prompt=", "--raw"}).prompt, "");
}

TEST(GenerateOptions, TheRunIsTheOneThatWasSavedLast) {
  const ScratchFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto saved = [&](const std::string& name, int minutes) {
    const std::string path = folder.file(name, "");
    std::filesystem::last_write_time(path,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::minutes(minutes));
  };
  saved("models/finished/ckpt.pt", 30);
  saved("models/notes.pt", 1);
  EXPECT_EQ(parse({}).model.checkpoint, "models/finished/ckpt.pt");
  saved("models/killed/ckpt_best.pt", 20);  // before its first ckpt.pt
  EXPECT_EQ(parse({}).model.checkpoint, "models/killed/ckpt_best.pt");
  saved("models/killed/ckpt.pt", 10);
  EXPECT_EQ(parse({}).model.checkpoint, "models/killed/ckpt.pt");
  std::filesystem::current_path(before);
}

TEST(GenerateOptions, AFolderMeansItsCheckpoint) {
  const ScratchFolder folder;
  EXPECT_EQ(parse({"--checkpoint", folder.path().c_str()}).model.checkpoint, folder / "ckpt.pt");
}

TEST(GenerateOptions, FaultsAreNamed) {
  EXPECT_NE(refusal({"--temprature", "1"}).find("did you mean '--temperature'?"), std::string::npos);
  EXPECT_NE(refusal({"--raw=nonsense"}).find("--raw"), std::string::npos);
  EXPECT_NE(refusal({"--top-z=1"}).find("unknown flag '--top-z'; did you mean '--top-"), std::string::npos);
  EXPECT_NE(refusal({"--zzzzzz"}).find("unknown flag '--zzzzzz'"), std::string::npos);
  EXPECT_EQ(refusal({"--temperature", "nan"}), "--temperature must be a number >= 0, got 'nan'");
  EXPECT_EQ(refusal({"--temperature", "-1"}), "--temperature must be a number >= 0, got '-1'");
  EXPECT_EQ(refusal({"--temperature", "warm"}), "--temperature must be a number >= 0, got 'warm'");
  EXPECT_EQ(refusal({"--top-p", "0"}), "--top-p must be a number from 1e-9 to 1, got '0'");
  EXPECT_EQ(refusal({"--top-p", "1.5"}), "--top-p must be a number from 1e-9 to 1, got '1.5'");
  EXPECT_EQ(refusal({"--top-k", "-2"}), "--top-k must be a whole number >= 0, got '-2'");
  EXPECT_EQ(refusal({"--top-k", "2.5"}), "--top-k must be a whole number >= 0, got '2.5'");
  EXPECT_EQ(refusal({"-n", "-1"}), "-n: 'max-new-tokens' must be a whole number >= 0, got '-1'");
  EXPECT_EQ(refusal({"--num-samples", "0"}), "--num-samples must be a whole number >= 1, got '0'");
  EXPECT_EQ(refusal({"--min-p", "1.5"}), "--min-p must be a number from 0 to 1, got '1.5'");
  EXPECT_EQ(refusal({"--repetition-penalty", "0"}), "--repetition-penalty must be a number from 0.01 to 100, got '0'");
  EXPECT_NE(refusal({"--stop", ""}).find("stop text"), std::string::npos);
  EXPECT_NE(refusal({"--dtype", "float64"}).find("float64"), std::string::npos);
  EXPECT_NE(refusal({"--prompt", "a", "--prompt-file", "b"}).find("--prompt"), std::string::npos);
  EXPECT_NE(refusal({"--prompt", "a", "-i"}).find("--prompt"), std::string::npos);
  EXPECT_NE(refusal({"--prompt-file", "a", "-i"}).find("--prompt-file"), std::string::npos);
  EXPECT_NE(refusal({"-i", "--num-samples", "2"}).find("--num-samples"), std::string::npos);
  EXPECT_NE(refusal({"-i", "--json"}).find("--json"), std::string::npos);
  EXPECT_NE(refusal({"-i", "--output", "a"}).find("--output"), std::string::npos);
  EXPECT_NE(refusal({"--output", ""}).find("--output"), std::string::npos);
  EXPECT_NE(refusal({"a", "--prompt", "b"}).find("--prompt"), std::string::npos);
  EXPECT_NE(refusal({"a", "--prompt-file", "b"}).find("--prompt-file"), std::string::npos);
  EXPECT_NE(refusal({"a", "-i"}).find("--interactive"), std::string::npos);
  EXPECT_NE(refusal({"--prompt"}).find("--prompt"), std::string::npos);
}

TEST(ReadPrompt, TakesTheFlagOrTheFile) {
  EXPECT_EQ(read_prompt(parse({"--prompt", "text\n"})), "text\n");
  const ScratchFolder folder;
  const std::string path = folder / "prompt.txt";
  std::ofstream(path, std::ios::binary) << "line\n\n";
  EXPECT_EQ(read_prompt(parse({"--prompt-file", path.c_str()})), "line\n");  // one newline less
  std::ofstream(path, std::ios::binary) << "\xEF\xBB\xBFKING.\r\nThe b\r\n";
  EXPECT_EQ(read_prompt(parse({"--prompt-file", path.c_str()})), "KING.\nThe b");
  EXPECT_EQ(read_prompt(parse({"KING.\r\nThe b"})), "KING.\nThe b");
  std::ofstream(path, std::ios::binary) << "\xEF\xBB\xBF";
  EXPECT_EQ(read_prompt(parse({"--prompt-file", path.c_str()})), "");
  std::ofstream(path, std::ios::binary) << std::string_view("\xFF\xFEK\0I\0", 6);
  EXPECT_ERROR(read_prompt(parse({"--prompt-file", path.c_str()})), ExitCode::data, path + ": it looks like UTF-16");
  std::filesystem::remove(path);
  try {
    read_prompt(parse({"--prompt-file", path.c_str()}));
    FAIL() << "a missing file was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::data);
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace gpt::generate
