#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/special_tokens.h"
#include "gpt/tokenizer/utf8.h"
#include "support/expect_error.h"

namespace gpt::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

// A code point below, at and above each boundary between 1, 2, 3 and 4 bytes.
const std::string kMixed = "a\xC2\x80z\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\n";

TEST(MakeTokenizer, AFileThatIsTooLargeIsNotRead) {
  const ScratchFolder folder;
  for (const char* name : {"t.json", "t.tiktoken", "vocab.bpe"}) {
    const std::string path = folder.file(name, "");
    folder.file("encoder.json", "{}");
    std::filesystem::resize_file(path, 67'108'865);
    EXPECT_ERROR(make_tokenizer(path, ""), ExitCode::data,
                 "cannot read " + path + ": it has 67,108,865 bytes; a tokenizer has at most 67,108,864");
  }
}

TEST(CharTokenizer, NumbersCharactersByCodePoint) {
  const auto tokenizer = make_tokenizer("char", "banané\n");
  EXPECT_EQ(tokenizer->vocab_size(), 5);  // \n a b n é
  EXPECT_EQ(tokenizer->encode("\nabné"), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(tokenizer->decode(Ids{4, 2, 0}), "éb\n");
  EXPECT_EQ(tokenizer->name(), "char");
}

TEST(CharTokenizer, RoundTripsEveryLengthOfUtf8) {
  const auto tokenizer = make_tokenizer("char", kMixed);
  const Ids ids = tokenizer->encode(kMixed);
  EXPECT_EQ(ids, (Ids{1, 3, 2, 4, 5, 6, 7, 8, 0}));
  EXPECT_EQ(tokenizer->decode(ids), kMixed);
}

TEST(CharTokenizer, NamesTheOffsetOfAnUnknownCharacter) {
  const auto tokenizer = make_tokenizer("char", "cafà ");
  EXPECT_ERROR(tokenizer->encode("càf càf café"), ExitCode::data,
               "byte 13: 'é' (U+00E9) is not in the vocabulary of 5 characters");
  EXPECT_ERROR(tokenizer->encode("a\n"), ExitCode::data, "byte 1: U+000A is not in");
  EXPECT_ERROR(tokenizer->decode(Ids{5}), ExitCode::data, "token id 5 is outside");
  EXPECT_ERROR(tokenizer->decode(Ids{-1}), ExitCode::data, "token id -1 is outside");
}

TEST(CharTokenizer, RefusesWhatIsNotUtf8) {
  const char* const invalid[] = {
      "ab\x80",                      // continuation without a lead
      "ab\xC3",                      // truncated
      "ab\xC3(",                     // lead without its continuation
      "ab\xC0\x80",                  // overlong, 2 bytes
      "ab\xE0\x9F\xBF",              // overlong, 3 bytes
      "ab\xF0\x8F\xBF\xBF",          // overlong, 4 bytes
      "ab\xED\xA0\x80",              // surrogate
      "ab\xF4\x90\x80\x80",          // above U+10FFFF
      "ab\xFC\x84\x80\x80\x80\x80",  // the six bytes of old
      "ab\xFF",
  };
  for (const std::string text : invalid) {
    EXPECT_ERROR(make_tokenizer("char", text), ExitCode::data, "byte 2: 0x");
    EXPECT_ERROR(make_tokenizer("char", "ab")->encode(text), ExitCode::data, "is not valid UTF-8");
  }
}

TEST(Utf8, PrefixCountsCharacters) {
  EXPECT_EQ(utf8::prefix("éàb", 2), "éà");
  EXPECT_EQ(utf8::prefix("éàb", 0), "");
  EXPECT_EQ(utf8::prefix("éàb", 9), "éàb");
}

TEST(ByteTokenizer, RoundTripsEveryByte) {
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  const auto tokenizer = make_tokenizer("byte", "");
  const Ids ids = tokenizer->encode(all);
  EXPECT_EQ(ids.front(), 0);
  EXPECT_EQ(ids.back(), 255);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_ERROR(tokenizer->decode(Ids{256}), ExitCode::data, "token id 256");
}

TEST(TokenizerJson, ComesBackEqual) {
  for (const std::string spec : {"char", "byte"}) {
    const auto tokenizer = make_tokenizer(spec, kMixed);
    const auto again = tokenizer_from_json(tokenizer->to_json(), "test");
    EXPECT_EQ(again->to_json(), tokenizer->to_json());
    EXPECT_EQ(again->name(), spec);
    EXPECT_EQ(again->encode(kMixed), tokenizer->encode(kMixed));
  }
  EXPECT_EQ(make_tokenizer("char", "b\"a\n")->to_json(), R"({"type":"char","characters":["\n","\"","a","b"]})");
}

TEST(TokenizerJson, IsCheckedWhenRead) {
  const auto refused = [](const std::string& json, const std::string& why) {
    EXPECT_ERROR(tokenizer_from_json(json, "tok.json"), ExitCode::data,
                 "tok.json: not a tokenizer that this program can read: " + why);
  };
  refused("{", "invalid JSON at byte");
  refused("[]", "the JSON is array");
  refused("{}", "it has neither 'type' nor Hugging Face's 'model'");
  refused(R"({"type":7})", "unknown type 7; only char and byte are known");
  refused(R"({"type":"bpe"})", "unknown type \"bpe\"; only char and byte are known");
  refused(R"({"type":"char"})", "'characters' must be");
  refused(R"({"type":"char","characters":{}})", "'characters' must be");
  refused(R"({"type":"char","characters":[]})", "'characters' must be");
  refused(R"({"type":"char","characters":["a",1]})", "characters[1] is number");
  refused(R"({"type":"char","characters":["a",""]})", "characters[1] has 0 bytes");
  refused(R"({"type":"char","characters":["ab"]})", "characters[0] has 2 bytes");
  refused(R"({"type":"char","characters":["é","é"]})", "characters[1] repeats 'é'");
}

// A small BPE tokenizer with these special tokens.
std::unique_ptr<Tokenizer> with_specials(const std::vector<std::string>& names) {
  nlohmann::json file = nlohmann::json::parse(make_tokenizer("bpe:300", "the theme of the thesis")->to_json());
  const int64_t tokens = std::ssize(file["model"]["vocab"]);
  file["added_tokens"].clear();
  file["model"]["vocab"].erase("<|endoftext|>");
  for (size_t i = 0; i < names.size(); ++i) {
    file["added_tokens"].push_back({{"id", i == 0 ? 0 : tokens + static_cast<int64_t>(i) - 1},
                                    {"content", names[i]},
                                    {"special", true},
                                    {"normalized", false},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false}});
  }
  return tokenizer_from_json(file.dump(), "changed");
}

std::string text_of(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  for (const SpecialToken& special : tokenizer.special_tokens())
    if (special.id == id) return special.text;
  return "";
}

TEST(MakeTokenizer, KnowsTheEndOfTextByItsUsualNames) {
  const auto end_of_text = [](const std::vector<std::string>& names) {
    const auto tokenizer = with_specials(names);
    return text_of(*tokenizer, tokenizer->end_of_text());
  };
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<EOS>",
                           "<|im_end|>", "<|eot_id|>", "<eod>", "[SEP]", "<\uff5cend\u2581of\u2581sentence\uff5c>"})
    EXPECT_EQ(end_of_text({name}), name);
  for (const char* name : {"<s>", "<pad>", "<unk>", "<|im_start|>", "<|user|>", "[CLS]"})
    EXPECT_EQ(end_of_text({name}), "");
  EXPECT_EQ(end_of_text({"<s>", "<pad>", "</s>"}), "</s>");
  EXPECT_EQ(end_of_text({"<|im_end|>", "<|endoftext|>"}), "<|endoftext|>");
}

TEST(MakeTokenizer, KnowsTheBeginOfTextByItsUsualNames) {
  const auto begin_of_text = [](const std::vector<std::string>& names) {
    const auto tokenizer = with_specials(names);
    return text_of(*tokenizer, tokenizer->begin_of_text());
  };
  for (const char* name : {"<|begin_of_text|>", "<s>", "<bos>", "[BOS]", "<|startoftext|>"})
    EXPECT_EQ(begin_of_text({name}), name);
  for (const char* name : {"</s>", "<|endoftext|>", "<pad>"}) EXPECT_EQ(begin_of_text({name}), "");
  EXPECT_EQ(begin_of_text({"</s>", "<s>"}), "<s>");
}

TEST(MakeTokenizer, TakesEachKindOfFile) {
  const ScratchFolder folder;
  EXPECT_EQ(make_tokenizer(folder.file("char.json", make_tokenizer("char", "xyz")->to_json()), "")->encode("zx"),
            (Ids{2, 0}));

  EXPECT_ERROR(make_tokenizer("bpe", "text"), ExitCode::config, "bpe needs the size of its vocabulary, as in bpe:8192");
  const auto trained = make_tokenizer("bpe:300", "the theme of the thesis: there, then");
  EXPECT_EQ(trained->name(), "bpe");
  EXPECT_LE(trained->vocab_size(), 300);
  EXPECT_EQ(trained->end_of_text(), 0);
  const Ids ids = trained->encode("the thesis");
  EXPECT_LT(ids.size(), 10u);
  EXPECT_EQ(make_tokenizer(folder.file("bpe.json", trained->to_json()), "")->encode("the thesis"), ids);

  std::string encoder = "{";
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = byte_alphabet::spell(std::string(1, static_cast<char>(byte)));
    encoder += nlohmann::json(spelling).dump() + ":" + std::to_string(byte) + ",";
  }
  const std::string vocab_bpe = folder.file("vocab.bpe", "#version: 0.2\nt h\n");
  EXPECT_ERROR(make_tokenizer(vocab_bpe, ""), ExitCode::data, "cannot read " + folder / "encoder.json");
  const std::string encoder_json = folder.file("encoder.json", encoder + R"("th":256})");
  EXPECT_EQ(make_tokenizer(vocab_bpe, "")->encode("the"), (Ids{256, 'e'}));
  EXPECT_EQ(make_tokenizer(encoder_json, "")->encode("the"), (Ids{256, 'e'}));

  const std::string tiktoken = folder.file("x.tiktoken", "AA== 0\n");
  EXPECT_ERROR(make_tokenizer(tiktoken, ""), ExitCode::data, tiktoken + ": 1 ranks");
  folder.file("merges.txt", "#version: 0.2\nt h\n");
  EXPECT_EQ(make_tokenizer(folder.file("vocab.json", encoder + R"("th":256})"), "")->encode("the"), (Ids{256, 'e'}));

  const std::string pickle = folder.file("meta.pkl", "\x80\x04\x95");
  EXPECT_ERROR(make_tokenizer(pickle, ""), ExitCode::data,
               pickle +
                   ": a Python pickle, which is never opened; nanoGPT's meta.pkl becomes a tokenizer with python3 -c");
  const std::string text = folder.file("x.txt", "no tokenizer");
  EXPECT_ERROR(make_tokenizer(text, ""), ExitCode::data,
               text + ": not a tokenizer that this program can read: invalid JSON");
}

TEST(RequireSameTokenizer, RefusesAnotherVocabulary) {
  const ScratchFolder folder;
  const std::string saved = make_tokenizer("bpe:300", "the theme of the thesis")->to_json();
  const std::string same = folder.file("same.json", saved);
  const std::string other = folder.file("other.json", make_tokenizer("bpe:300", "another text altogether")->to_json());
  EXPECT_NO_THROW(require_same_tokenizer(same, saved));
  EXPECT_NO_THROW(require_same_tokenizer("bpe:300", saved));
  EXPECT_ERROR(require_same_tokenizer(other, saved), ExitCode::checkpoint,
               "data.tokenizer: " + other + " is not the tokenizer of the checkpoint");
}

TEST(MakeTokenizer, ListsWhatThereIs) {
  EXPECT_ERROR(make_tokenizer("absent.json", ""), ExitCode::config,
               "tokenizer 'absent.json': it is not char, byte, gpt2, bpe:N or a tokenizer file");
}

TEST(TrainedVocabulary, IsTheNumberBehindBpe) {
  EXPECT_EQ(trained_vocabulary("bpe:8192"), 8192);
  EXPECT_EQ(trained_vocabulary("byte"), std::nullopt);
  for (const char* spec : {"bpe:", "bpe:x", "bpe:300x", "bpe:0", "bpe:-300", "bpe:99999999999999999999"}) {
    EXPECT_ERROR(trained_vocabulary(spec), ExitCode::config,
                 "tokenizer '" + std::string(spec) + "': bpe needs the size of its vocabulary");
  }
}

TEST(TextBytes, AreThoseOfEachIdAndNoneOfSpecialTokens) {
  EXPECT_EQ(make_tokenizer("char", "aé€")->text_bytes(), (Ids{1, 2, 3}));
  const auto trained = make_tokenizer("bpe:258", "the the");
  EXPECT_EQ(trained->text_bytes()[0], 0);  // <|endoftext|>
  EXPECT_EQ(trained->text_bytes()[257], 2);
}

TEST(LastCharacter, IsNeverCut) {
  EXPECT_EQ(utf8::last_character("ab"), 1);
  EXPECT_EQ(utf8::last_character("a€"), 1);
  EXPECT_EQ(utf8::last_character("€"), 0);
  EXPECT_EQ(utf8::last_character("\x80\x80"), 0);
  EXPECT_EQ(utf8::last_character(""), 0);
}

}  // namespace
}  // namespace gpt::tokenizer
