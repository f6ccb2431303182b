#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpt/config/arguments.h"

namespace gpt::config {
namespace {

struct CompletedValues {
  bool on = false, may = false;
  std::string file;
  std::vector<std::string> files;
  int64_t size = 0;
};

Program completed_program(CompletedValues& values, std::string name) {
  Program program{.name = std::move(name), .description = "d", .usage = "u", .sections = {}};
  program.sections.push_back(
      {"All",
       {switch_row("on", values.on, "switch it's [on]"),
        {.section = "model", .name = "may_be", .target = &values.may, .help = "h", .aliases = {{"maybe"}, {"m"}}},
        {.section = "model", .name = "size", .target = NumberOrAuto{&values.size}, .help = "h"},
        {.name = "file", .target = &values.file, .help = "h", .aliases = {{"f"}, {"data"}}},
        {.name = "files", .target = &values.files, .help = "h"}}});
  program.guide.first = {"data"};
  return program;
}

bool has_part(const std::string& script, const std::string& part) { return script.find(part) != std::string::npos; }

TEST(Completions, BashKnowsEverySpellingOfAFlagThatHasValues) {
  CompletedValues values;
  const std::string script = completion_script(completed_program(values, "gpt-x"), Shell::bash);
  EXPECT_TRUE(has_part(script, "    --may-be | --model.may-be | --maybe | -m) values='true false' ;;\n")) << script;
  EXPECT_TRUE(has_part(script, "    --size | --model.size) values='auto' ;;\n")) << script;
  EXPECT_TRUE(has_part(script, "  flags='--data -f --on --may_be -m --size --file -f --files'\n")) << script;
  EXPECT_TRUE(has_part(script, "[[ $word != *.* ]] || flags='--model.may_be --model.size'\n")) << script;
  EXPECT_TRUE(script.ends_with("\ncomplete -o default -F _gpt_x gpt-x\n")) << script;
}

TEST(Completions, ZshIsToldWhatAFlagTakes) {
  CompletedValues values;
  const std::string script = completion_script(completed_program(values, "gpt-x"), Shell::zsh);
  EXPECT_TRUE(script.starts_with("#compdef gpt-x\n_gpt_x() {\n")) << script;
  EXPECT_TRUE(has_part(script, R"(    '--on[switch it'\''s \[on\]]' \)")) << script;
  EXPECT_TRUE(has_part(script, "    '(-m --may_be)'{-m+,--may_be=}'[h]::value:(true false)' \\\n")) << script;
  EXPECT_TRUE(has_part(script, "    '*--files=[h]:value:_files' \\\n")) << script;
}

TEST(Completions, ACommandIsAFunctionThatItsProgramCalls) {
  CompletedValues values;
  for (const Shell shell : {Shell::bash, Shell::zsh}) {
    const std::string command = completion_script(completed_program(values, "gpt-x run"), shell);
    EXPECT_TRUE(has_part(command, "_gpt_x_run() {\n")) << command;
    EXPECT_TRUE(command.ends_with("\n}\n")) << command;
    Program program = completed_program(values, "gpt-x");
    program.commands = {"run", "walk"};
    const std::string script = completion_script(program, shell);
    EXPECT_TRUE(has_part(script, "run walk")) << script;
    EXPECT_TRUE(has_part(script, shell == Shell::bash ? "\"_gpt_x_${COMP_WORDS[1]}\"" : "\"_gpt_x_$command\""))
        << script;
  }
}

}  // namespace
}  // namespace gpt::config
