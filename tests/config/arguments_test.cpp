// The command lines that CLI11 reads: every refusal is one line of ours, for whatever a program declares.
#include "gpt/config/arguments.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <map>

#include "config/faults.h"
#include "core/scratch_folder.h"

namespace gpt::config {
namespace {

// An app with an option of every kind, told `arguments`.
std::string fault(std::vector<std::string> arguments) {
  CLI::App app("", "p");
  int64_t whole = 0;
  uint64_t natural = 0;
  double number = 0, share = 0;
  std::string text, choice, file, even;
  std::vector<std::string> inputs, stops;
  std::vector<int64_t> pair;
  bool on = false;
  const std::map<std::string, int> choices = {{"float32", 0}, {"bfloat16", 1}};
  app.add_option("-w,--whole", whole);
  app.add_option("--natural", natural);
  app.add_option("--number,-n", number)->check(CLI::PositiveNumber);
  app.add_option("--share", share)->check(CLI::Range(0.0, 1.0));
  CLI::Option* const given = app.add_option("--text", text);
  app.add_option("--choice", choice)->check(CLI::IsMember(&choices));
  app.add_option("--file", file)->check(CLI::ExistingFile);
  app.add_option("--even", even)->check([](const std::string& value) {
    return value.size() % 2 ? "must be of even length" : "";
  });
  app.add_option("--input", inputs);
  app.add_option("--stop", stops)->allow_extra_args(false);
  app.add_option("--pair", pair)->expected(2);
  app.add_flag("--on", on)->excludes(given);
  app.add_option("--along", whole)->needs(given);
  std::vector<const char*> words = {"p"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  return fault_of([&] { parse_arguments(app, static_cast<int>(words.size()), words.data()); });
}

TEST(Arguments, WrongValuesNameTheFlagTheValueAndWhatIsRight) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--whole", "x"}, "--whole must be a whole number, got 'x'"},
      {{"-w", "1.5"}, "--whole must be a whole number, got '1.5'"},
      {{"--whole="}, "--whole must be a whole number, got ''"},
      {{"--whole", ""}, "--whole must be a whole number, got ''"},
      {{"--natural", "-1"}, "--natural must be a whole number >= 0, got '-1'"},
      {{"--number", "x"}, "--number must be a number > 0, got 'x'"},
      {{"--number", "-1"}, "--number must be a number > 0, got '-1'"},
      {{"--share", "2"}, "--share must be a number 0 to 1, got '2'"},
      {{"--choice", "x"}, "--choice must be one of bfloat16, float32, got 'x'"},
      {{"--choice", "bf16"}, "--choice must be one of bfloat16, float32, got 'bf16'; did you mean 'bfloat16'?"},
      {{"--choice", "flaot32"}, "--choice must be one of bfloat16, float32, got 'flaot32'; did you mean 'float32'?"},
      {{"--file", "/nonexistent"}, "--file must be an existing file, got '/nonexistent'"},
      {{"--even", "abc"}, "--even: must be of even length, got 'abc'"},
      {{"--on=maybe"}, "--on is a switch and takes no value, got 'maybe'"},
      {{"--whole", "1", "--whole", "2"}, "--whole is given twice; keep one"},
      {{"--pair", "1"}, "--pair takes 2 values, got 1"},
      {{"--pair", "1", "x"}, "--pair must be a whole number, got '1 x'"},
      {{"--text"}, "--text needs a value"},
      {{"--whole"}, "--whole needs a value, a whole number"},
      {{"--on", "--text", "a"}, "--text and --on exclude each other; keep one"},
      {{"--along", "1"}, "--along needs --text too"},
      {{"--texd", "a"}, "unknown flag '--texd'; did you mean '--text'?"},
      {{"--whole", "x", "--texd", "a"}, "unknown flag '--texd'; did you mean '--text'?"},
  };
  for (const auto& [arguments, message] : cases) EXPECT_EQ(fault(arguments), std::string(message) + "; see p --help");
  EXPECT_EQ(fault({"--whole", "1", "--pair", "1", "2", "--stop", "a", "--stop", "b"}), "no fault");
}

TEST(Arguments, ARequiredOptionIsAskedFor) {
  CLI::App app("", "p");
  int64_t steps = 0;
  app.add_option("--steps", steps)->required();
  const char* words[] = {"p"};
  EXPECT_EQ(fault_of([&] { parse_arguments(app, 1, words); }), "--steps is missing; it takes a whole number; see p --help");
}

TEST(Arguments, WordsWithoutAFlag) {
  const ScratchFolder folder;
  const std::string a = folder.file("a.txt", "text"), b = folder.file("b.txt", "text");
  EXPECT_EQ(fault({"--input", a, b, "--whole", "1"}), "no fault");  // as the shell expands --input *.txt
  EXPECT_EQ(fault({a}), "'" + a + "' has no flag before it; did you mean --input " + a + "?; see p --help");
  EXPECT_EQ(fault({"--text", a, b}), "--text takes one value, but 2 files follow it ('" + a + "', '" + b +
                                         "'); if the shell expanded a pattern, put the pattern in quotes: --text '" +
                                         folder / "*.txt" + "'; see p --help");
  EXPECT_EQ(fault({"--text", "two", "words"}),
            "unexpected argument 'words' after '--text two'; a flag takes one value, and a value with spaces needs quotes; "
            "see p --help");
  EXPECT_EQ(fault({"nothing"}),
            "unexpected argument 'nothing'; a value must follow its flag, and a value with spaces needs quotes; see p --help");
}

}  // namespace
}  // namespace gpt::config
