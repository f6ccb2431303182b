// The usual mistakes of a first configuration: each is one line of ours with its place and its repair.
#include <gtest/gtest.h>

#include "config/faults.h"

namespace gpt::config {
namespace {

using Cases = std::vector<std::pair<const char*, const char*>>;

void expect_faults(const Cases& cases) {
  for (const auto& [yaml, fault] : cases) EXPECT_EQ(yaml_fault(yaml), std::string("c.yaml:") + fault) << yaml;
}

TEST(YamlMistakes, TabsInTheIndentation) {
  constexpr const char* kTab = "a tab in the indentation; indent with spaces";
  for (const auto& [yaml, place] : Cases{{"model:\n\tbias: true\n", "2:1: "},
                                         {"model:\n  n_head: 4\n\tbias: true\n", "3:1: "},
                                         {"model:\n \tbias: true\n", "2:2: "},
                                         {"training:\n\tbatch_size: 3\n\tmin_lr: 1\n", "2:1: "},
                                         {"training:\n\tbatch_size 3\n", "2:1: "}}) {
    EXPECT_EQ(yaml_fault(yaml), std::string("c.yaml:") + place + kTab) << yaml;
  }
  EXPECT_EQ(yaml_fault("seed:\t3\t# tabs elsewhere\nmodel:\n\t\n\t# nothing\n  bias: true\t\n"), "no fault");
}

TEST(YamlMistakes, MissingColonsAndSpaces) {
  expect_faults({
      {"training:\n  batch_size 32\n", "2:3: a colon is missing: write 'batch_size: 32'"},
      {"training:\n  batch_size 32\n  min_lr: 0\n", "2:3: a colon is missing: write 'batch_size: 32'"},
      {"training:\n  min_lr: 0\n  batch_size 32\n", "3:3: a colon is missing: write 'batch_size: 32'"},
      {"training:\n  min_lr: 0\n  batch_size 32  # of them\n  beta1: 0.5\n",
       "3:3: a colon is missing: write 'batch_size: 32'"},
      {"training:\n  min_lr: 0\n    batch_size 32\n",
       "3:5: this line continues the value above it; write a value on one line, and a colon after a key"},
      {"data:\n  text: a.txt\n    tokenizer byte\n",
       "3:5: this line continues the value above it; write a value on one line, and a colon after a key"},
      {"seed 3\n", "1:1: a colon is missing: write 'seed: 3'"},
      {"seed 3\nthreads: 2\n", "1:1: a colon is missing: write 'seed: 3'"},
      {"threads: 2\nseed 3\n", "2:1: a colon is missing: write 'seed: 3'"},
      {"training\n  batch_size: 32\n", "1:1: a colon is missing: write 'training:'"},
      {"training:\n  batch_size:32\n", "2:3: a space is missing after the colon: write 'batch_size: 32'"},
      {"training:\n  batch_size:32\n  min_lr: 0\n", "2:3: a space is missing after the colon: write 'batch_size: 32'"},
      {"seed\uFF1A3\n", "1:1: a colon is missing: write 'seed: 3'"},
      {"seed:3\r\n", "1:1: a space is missing after the colon: write 'seed: 3'"},
      {"training:\n  batch_size = 32\n",
       "2:3: a key and its value are separated by a colon, not by '=': write 'batch_size: 32'"},
      {"out_dir = 'x'\nbatch_size = 3\n",
       "1:1: a key and its value are separated by a colon, not by '=': write 'out_dir: 'x''"},
      {"[model]\nn_head = 4\n", "1:1: a section is written 'model:'"},
      {"seed: 1\n[model]\nn_head = 4\n", "2:1: a section is written 'model:'"},
      {"// mine\nseed: 1\n", "1:1: a comment starts with '#'"},
  });
}

TEST(YamlMistakes, Indentation) {
  expect_faults({
      {"model:\n    n_head: 4\n  n_layer: 3\n",
       "3:3: wrong indentation: 2 spaces here, 4 in the line above; keys of one section must start in the same column"},
      {"model:\n  n_head: 4\n    n_layer: 3\n",
       "3:5: wrong indentation: 4 spaces here, 2 in the line above; keys of one section must start in the same column"},
      {"seed: 1\n  bias: 2\n",
       "2:3: wrong indentation: 2 spaces here, 0 in the line above; keys of one section must start in the same column"},
      {" seed: 1\nthreads: 2\n",
       "2:1: wrong indentation: less than in the first line; keys of one level must start in the same column"},
      {"model:\nn_head: 4\n", "2:1: 'n_head' belongs below 'model:', indented"},
      {"training:\n  sample_prompt: once upon\n    a time: there\n",
       "3:5: this line continues the value above it; write a value on one line, and a colon after a key"},
      {"training:\n  sample_prompt: once upon\n    - a\n",
       "3:5: this line continues the value above it; write a value on one line, and a colon after a key"},
  });
}

TEST(YamlMistakes, QuotesAndBrackets) {
  expect_faults({
      {"device: \"cpu\nseed: 1\n", "1:9: the closing quote is missing on this line"},
      {"device: 'cpu\n", "1:9: the closing quote is missing on this line"},
      {"device: 'cpu", "1:9: the closing quote is missing on this line"},
      {"device: \"cpu\" x\n", "1:15: unexpected text after the value; inside single quotes, write an apostrophe twice"},
      {"training:\n  sample_prompt: 'it's'\n",
       "2:22: unexpected text after the value; inside single quotes, write an apostrophe twice"},
      {"data:\n  stages: [{from: 0}, {from: 5}\ntraining:\n  epochs: 2\n", "2:11: '[' is never closed"},
      {"data:\n  stages: [\n    {from: 0}\n    {from: 5}\n  ]\n", "4:5: a comma is missing before this"},
      {"model: {n_head: 3\n", "1:8: '{' is never closed"},
      {"data:\n  stages: [{from: 0}, {from: 5]\n", "2:31: ']' does not close the '{' in column 23"},
      {"data:\n  stages: [{from: 0}]]\n", "2:22: there is nothing for ']' to close; remove it"},
      {"model: {n_head: 3 n_layer: 4}\n", "1:26: a comma is missing before this"},
  });
}

TEST(YamlMistakes, ValuesThatNeedQuotes) {
  expect_faults({
      {"data:\n  text: *.txt\n", "2:9: a value that starts with '*' needs quotes"},
      {"data:\n  text: *\n", "2:10: a value that starts with '*' needs quotes"},
      {"data:\n  text: @x\n", "2:9: a value that starts with '@' needs quotes"},
      {"data:\n  text: `x`\n", "2:9: a value that starts with '`' needs quotes"},
      {"data:\n  text: >x\n", "2:10: a value that starts with '>' needs quotes"},
      {"training:\n  sample_prompt: ROMEO:\n", "2:23: a value with ': ' in it, or ':' at its end, needs quotes"},
      {"seed: a: b\n", "1:8: a value with ': ' in it, or ':' at its end, needs quotes"},
      {"data:\n  text: \"C:\\data\\x.txt\"\n",
       "2:14: in double quotes, a backslash starts an escape such as \\n; use single quotes"},
  });
}

TEST(YamlMistakes, EncodingsOfWindows) {
  const std::string utf16 = "c.yaml: the file is text in UTF-16; save it as UTF-8";
  EXPECT_EQ(yaml_fault(std::string("\xFF\xFEs\0e\0", 6)), utf16);
  EXPECT_EQ(yaml_fault(std::string("\xFE\xFF\0s\0e", 6)), utf16);
  EXPECT_EQ(yaml_fault(std::string("s\0e\0", 4)), utf16);
  EXPECT_EQ(yaml_fault("seed: 1\r\nmodel:\r\n  n_head: 3\r\n"), "no fault");
  EXPECT_EQ(yaml_fault("model:\r\n  n_head 3\r\n"), "c.yaml:2:3: a colon is missing: write 'n_head: 3'");
}

}  // namespace
}  // namespace gpt::config
