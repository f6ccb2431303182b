// The named templates against what the families write (named.json, by scripts/make_chat_fixtures.py), and what they ask of a tokenizer.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/chat_tokenizer.h"
#include "core/scratch_folder.h"
#include "gpt/chat/chat_layout.h"
#include "gpt/chat/chat_template.h"
#include "gpt/core/file.h"
#include "gpt/jinja/template_error.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::chat {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

const std::vector<std::string> kNames = {"chatml", "llama2", "llama3", "zephyr", "alpaca", "plain"};

std::shared_ptr<const tokenizer::Tokenizer> bytes(const Texts& specials = {}) { return byte_tokenizer(specials); }

Dialogue dialogue_of(const json& messages) {
  Dialogue dialogue;
  for (const json& message : messages) dialogue.push_back({message["role"], message["content"]});
  return dialogue;
}

TEST(NamedTemplates, WriteWhatTheirFamiliesWrite) {
  const json file = json::parse(read_file(test::source_folder() + "/tests/chat/named.json", ExitCode::data));
  tokenizer::TextFormat format;
  format.begin = 256, format.ends = {257};
  const auto tokenizer = bytes({"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
                                "<|end_header_id|>", "<|eot_id|>"});
  for (const std::string& name : kNames) {
    const json& cases = file["templates"][name];
    ASSERT_EQ(cases.size(), file["dialogues"].size());
    const ChatTemplate chat(template_source(name), format, *tokenizer);
    for (size_t i = 0; i < cases.size(); ++i) {
      const Dialogue dialogue = dialogue_of(file["dialogues"][i]);
      for (const bool asks : {false, true}) {
        const json& expected = cases[i][asks ? 1 : 0];
        const std::string what = name + " " + file["dialogues"][i].dump();
        if (expected.is_null()) {
          EXPECT_THROW((void)chat.render(dialogue, asks), jinja::Refusal) << what;
        } else {
          EXPECT_EQ(chat.render(dialogue, asks).text, expected) << what;
        }
      }
    }
  }
}

TEST(NamedTemplates, GetTheTokensThatTheTokenizerLacks) {
  const auto added = [](const std::string& name, const Texts& specials) {
    return lay_out_as(name, {}, bytes(specials)).added;
  };
  EXPECT_EQ(added("chatml", {}), (Texts{"<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(added("auto", {}), (Texts{"<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(added("auto", {"<|im_end|>"}), Texts{"<|im_start|>"});
  EXPECT_EQ(added("chatml", {"<|im_start|>", "<|im_end|>"}), Texts{});
  EXPECT_EQ(added("llama3", {"<|eot_id|>"}), (Texts{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"}));
  for (const char* name : {"llama2", "zephyr", "alpaca", "plain"}) {
    EXPECT_EQ(added(name, {}), Texts{"</s>"}) << name;
    EXPECT_EQ(added(name, {"<|endoftext|>"}), Texts{}) << name;
  }
}

TEST(NamedTemplates, BecomeThoseOfTheModel) {
  tokenizer::TextFormat format;
  format.ends = {300}, format.tokenizer_end = 300;
  const ChatLayout layout = lay_out_as("auto", format, bytes({"a!", "b!"}));
  EXPECT_EQ(layout.format.chat_template, kChatMl);
  EXPECT_EQ(layout.format.ends, (std::vector<int32_t>{300, 259})) << "what ends a turn ends a text, too";
  EXPECT_EQ(layout.tokenizer->encode_with_specials("<|im_start|>a!"), (std::vector<int32_t>{258, 256}));
  // The second time there is nothing to be done.
  const ChatLayout again = lay_out_as("auto", layout.format, layout.tokenizer);
  EXPECT_EQ(again.format, layout.format);
  EXPECT_EQ(again.tokenizer, layout.tokenizer);
  EXPECT_EQ(lay_out_as("chatml", layout.format, layout.tokenizer).format, layout.format);
  // The model's own stays as it is, whatever its tokenizer lacks.
  format.chat_template = "{{ '<|im_end|>' ~ eos_token }}";
  const ChatLayout own = lay_out_as("auto", format, bytes());
  EXPECT_EQ(own.format.chat_template, format.chat_template);
  EXPECT_EQ(own.added, Texts{});
  EXPECT_EQ(own.format.ends, format.ends);
}

TEST(NamedTemplates, MayBeAFile) {
  const ScratchFolder folder;
  const std::string path = folder.file("own.jinja", "{{ '<|im_end|>' }}{{ messages | length }}");
  const ChatLayout layout = lay_out_as(path, {}, bytes());
  EXPECT_EQ(layout.format.chat_template, "{{ '<|im_end|>' }}{{ messages | length }}");
  EXPECT_EQ(layout.added, Texts{"<|im_end|>"});
  EXPECT_ERROR(template_source("chatlm"), ExitCode::config,
               "chat template 'chatlm': it is no file, and none of chatml, llama2, llama3, zephyr, alpaca, plain");
  const std::string broken = folder.file("broken.jinja", "{% include 'x' %}");
  EXPECT_ERROR(lay_out_as(broken, {}, bytes()), ExitCode::data, "the chat template, line 1");
}

}  // namespace
}  // namespace gpt::chat
