// The command lines of all programs: every refusal is one line, for whatever rows a program has.
#include "gpt/config/arguments.h"

#include <gtest/gtest.h>

#include "config/faults.h"
#include "core/scratch_folder.h"
#include "gpt/config/value.h"
#include "support/captured_output.h"

namespace gpt::config {
namespace {

// A program with a row of every kind.
struct Values {
  int64_t whole = 0;
  uint64_t natural = 0;
  double share = 0;
  std::string text = "default", page;
  std::vector<std::string> inputs;
  bool on = false, half = false;
  size_t chosen = 0;
  std::vector<std::string> words;
};

std::vector<Section> sections(Values& v) {
  return {{"Numbers",
           {{.name = "whole", .target = &v.whole, .help = "a number", .aliases = {{"w"}}},
            {.name = "natural",
             .target = &v.natural,
             .help = "a number",
             .min = 0,
             .aliases = {{"n"}, {"unsigned-number"}}},
            {.name = "share", .target = &v.share, .help = "a part", .min = 0, .max = 1}}},
          {"Others",
           {{.name = "text", .target = &v.text, .help = "a text"},
            {.name = "page", .target = &v.page, .help = "an address", .if_true = "here:80"},
            {.name = "choice",
             .target = Choice{{"float32", "bfloat16"}, [&v] { return v.chosen; }, [&v](size_t i) { v.chosen = i; }},
             .help = "a type"},
            {.name = "input-file", .target = &v.inputs, .help = "files"},
            {.name = "half", .target = &v.half, .help = "true or false"},
            switch_row("on", v.on, "a switch", {{"o"}})}}};
}

Values parse(std::vector<std::string> arguments, bool takes_words = false) {
  std::vector<const char*> words = {"p"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  Values values;
  const std::vector<Section> rows = sections(values);
  const auto given =
      parse_arguments({.name = "p",
                       .description = "Tests.",
                       .usage = "[--FLAG VALUE ...]",
                       .sections = rows,
                       .guide = {.first = {"unsigned-number", "on"}, .examples = "  p --on\n", .ending = "The end.\n"},
                       .takes_words = takes_words,
                       .flag_for = [](const std::string&) { return "--input-file"; }},
                      static_cast<int>(words.size()), words.data());
  if (!given) return values;
  apply_settings(given->settings, rows_of(rows));
  Values result = values;
  result.words = given->words;
  return result;
}

std::string fault(const std::vector<std::string>& arguments) {
  return fault_of([&] { parse(arguments); });
}

TEST(Arguments, EverySpellingReachesItsValue) {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"--whole", "-5"}, {"--whole=-5"}, {"-w", "-5"}, {"-w-5"}})
    EXPECT_EQ(parse(words).whole, -5) << words[0];
  for (const Words& words : {Words{"--unsigned-number=7"}, {"--unsigned_number", "7"}, {"-n7"}}) {
    EXPECT_EQ(parse(words).natural, 7u) << words[0];
  }
  EXPECT_EQ(parse({"--natural", "18446744073709551615"}).natural, 18446744073709551615u);
  EXPECT_EQ(parse({"--choice", "bfloat16"}).chosen, 1u);
  EXPECT_EQ(parse({"--text", "--whole"}).text, "--whole");  // a flag takes what follows, whatever it is
  for (const char* text : {"", "--x", "--whole=", "a=", "-.5", "--"}) {
    EXPECT_EQ(parse({"--text", text, "--on"}).text, text);
    EXPECT_EQ(parse({std::string("--text=") + text, "--on"}).text, text);
    EXPECT_EQ(parse({"--input-file", "x", std::string("--input-file=") + text}).inputs.back(), text);
  }
  EXPECT_EQ(parse({"--input-file", "[a,b]", "[c,d]"}).inputs, (Words{"[a,b]", "[c,d]"}));
  EXPECT_EQ(parse({"-on5"}).natural, 5u);  // -o is a switch
  EXPECT_TRUE(parse({"-o", "--half=false"}).on);
  EXPECT_TRUE(parse({"--half", "--on"}).half);
  EXPECT_FALSE(parse({"--half", "no"}).half);
  EXPECT_EQ(parse({}).text, "default");
}

TEST(Arguments, AFlagOfATextMayMeanSomethingAlone) {
  EXPECT_EQ(parse({}).page, "");
  EXPECT_EQ(parse({"--page"}).page, "here:80");
  EXPECT_EQ(parse({"--page", "--on"}).page, "here:80");
  EXPECT_EQ(parse({"--page", "there:81", "--on"}).page, "there:81");
  EXPECT_EQ(parse({"--page=there:81"}).page, "there:81");
  EXPECT_EQ(parse({"--text", "true"}).text, "true");
  Values values;
  EXPECT_NE(help_text({.name = "p", .description = "Tests.", .usage = "", .sections = sections(values)}, 80)
                .find("--page [here:80]"),
            std::string::npos);
}

TEST(Arguments, WrongValuesNameTheFlagTheValueAndWhatIsRight) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--whole", "x"}, "--whole must be a whole number, got 'x'"},
      {{"-w", "1.5"}, "-w: 'whole' must be a whole number, got '1.5'"},
      {{"--whole="}, "--whole must be a whole number, got ''"},
      {{"--whole", ""}, "--whole must be a whole number, got ''"},
      {{"--natural", "-1"}, "--natural must be a whole number >= 0, got '-1'"},
      {{"--natural", "18446744073709551616"},
       "--natural must be a whole number >= 0, got '18446744073709551616'; the largest is 18446744073709551615"},
      {{"--whole", "9223372036854775808"},
       "--whole must be a whole number, got '9223372036854775808'; the largest is 9223372036854775807"},
      {{"--share", "2"}, "--share must be a number from 0 to 1, got '2'"},
      {{"--share", "nan"}, "--share must be a number from 0 to 1, got 'nan'"},
      {{"--choice", "x"}, "--choice must be one of float32, bfloat16, got 'x'"},
      {{"--choice", "bf16"}, "--choice must be one of float32, bfloat16, got 'bf16'; did you mean 'bfloat16'?"},
      {{"--choice", "flaot32"}, "--choice must be one of float32, bfloat16, got 'flaot32'; did you mean 'float32'?"},
      {{"--half", "0"}, "--half must be true or false, got '0'; write false"},
      {{"--on=maybe"}, "--on is a switch and takes no value, got 'maybe'"},
      {{"--text"}, "--text needs a value"},
      {{"-w"}, "-w needs a value"},
      {{"--texd", "a"}, "unknown flag '--texd'; did you mean '--text'?"},
      {{"--whole", "x", "--texd", "a"}, "unknown flag '--texd'; did you mean '--text'?"},
      {{"--zzzzzz"}, "unknown flag '--zzzzzz'; --help lists all flags"},
      {{"-whole"}, "-w: 'whole' must be a whole number, got 'hole'"},
  };
  for (const auto& [arguments, message] : cases) EXPECT_EQ(fault(arguments), message);
}

TEST(Arguments, WordsWithoutAFlag) {
  const ScratchFolder folder;
  const std::string a = folder.file("a.txt", "text"), b = folder.file("b.txt", "text");
  const Values values = parse({"--input-file", a, b, "--whole", "1", "--input-file=c"});  // as the shell expands *.txt
  EXPECT_EQ(values.inputs, (std::vector<std::string>{a, b, "c"}));
  EXPECT_EQ(fault({a}), "'" + a + "' has no flag before it; did you mean --input-file " + a + "?");
  EXPECT_EQ(fault({"--text", a, b}), "--text takes one value, but 2 files follow it ('" + a + "', '" + b +
                                         "'); if the shell expanded a pattern, put the pattern in quotes: --text '" +
                                         folder / "*.txt" + "'");
  EXPECT_EQ(
      fault({"--text", "two", "words"}),
      "unexpected argument 'words' after '--text two'; a flag takes one value, and a value with spaces needs quotes");
  EXPECT_EQ(
      fault({"--text", "words", "words"}),
      "unexpected argument 'words' after '--text words'; a flag takes one value, and a value with spaces needs quotes");
  EXPECT_EQ(fault({"nothing"}),
            "unexpected argument 'nothing'; a value must follow its flag, and a value with spaces needs quotes");
}

TEST(Arguments, AProgramMayTakeWords) {
  const Values values =
      parse({"one", "--input-file", "a", "-5 degrees", "--on", "-", "--", "--whole"}, /*takes_words=*/true);
  EXPECT_EQ(values.words, (std::vector<std::string>{"one", "-5 degrees", "-", "--whole"}));
  EXPECT_EQ(values.inputs, (std::vector<std::string>{"a"}));
  EXPECT_TRUE(values.on);
  for (const char* word : {"", "-.5", "---", "-> x", "-\u00e9", "[a,b]", "x="})
    EXPECT_EQ(parse({word}, true).words.at(0), word);
}

TEST(Arguments, HelpShowsDefaultsRangesAndSpellingsWhateverElseIsWrong) {
  test::CapturedOutput output;
  parse({"--texd", "--help", "--share", "7"});
  const std::string help = output.text();
  EXPECT_TRUE(
      help.starts_with("Tests.\n\nUsage: p [--FLAG VALUE ...]\n\nThe flags that people need first\n"
                       "  -n, --unsigned-number 0           a number [>= 0] (natural)\n"
                       "  -o, --on                          a switch\n\nExamples\n  p --on\n\nA flag is written"))
      << help;
  EXPECT_NE(help.find("\nNumbers\n  -w, --whole 0                     a number\n"), std::string::npos) << help;
  EXPECT_NE(help.find("\n  -n, --natural 0                   a number [>= 0] (unsigned-number)\n"), std::string::npos)
      << help;
  EXPECT_NE(help.find("\n  --share 0                         a part [0 to 1]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("\n  --choice float32                  a type [float32, bfloat16]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("\n  --input-file VALUE                files\n"), std::string::npos) << help;
  EXPECT_NE(help.find("\n  -o, --on                          a switch\n"), std::string::npos) << help;
  EXPECT_TRUE(help.ends_with("\n  -h, --help                        show this help\n\nThe end.\n")) << help;
}

TEST(CheckValues, NameTheRowWhoseValueIsOutOfItsRange) {
  Values values;
  check_values(rows_of(sections(values)));
  values.share = 1.5;
  EXPECT_EQ(fault_of([&] { check_values(rows_of(sections(values))); }),
            "'share' must be a number from 0 to 1, got '1.5'");
}

}  // namespace
}  // namespace gpt::config
