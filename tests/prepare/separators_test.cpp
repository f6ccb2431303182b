// Lines that separate documents in a text file, and how lines end: what the reader makes of them, and what is prepared.
#include "src/prepare/separators.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "gpt/prepare/prepare.h"
#include "gpt/prepare/prepare_report.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "src/prepare/document_reader.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

using Texts = std::vector<std::string>;

class SeparatorsTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) const { return folder_.file(name, bytes); }

  DocumentReader reader(const std::vector<std::string>& inputs, const std::vector<std::string>& separators) const {
    return DocumentReader(find_sources(inputs, "").sources,
                          {.last_cut = [](std::string_view text) { return text.size() - 1; },
                           .text_field = "text",
                           .separators = separators});
  }

  static Texts documents(DocumentReader&& reader) {
    Texts result;
    while (std::optional<Chunk> chunk = reader.next()) {
      const Chunk parsed = reader.parsed(std::move(*chunk));
      size_t begin = 0;
      for (const DocumentPart& part : parsed.parts) {
        if (part.first) result.emplace_back();
        result.back() += parsed.text.substr(begin, part.end - begin);
        begin = part.end;
      }
    }
    return result;
  }

  PrepareOptions options(const std::string& input, const std::string& tokenizer) const {
    PrepareOptions result;
    result.inputs = {input};
    result.tokenizer = tokenizer;
    result.validation_fraction = 0;
    return result;
  }
  std::string output() const { return folder_ / "out"; }
  std::string decoded() const {
    const std::string bytes = read_file(output() + "/tokens_bpe.bin", ExitCode::data);
    std::vector<uint16_t> ids(bytes.size() / 2);
    std::memcpy(ids.data(), bytes.data(), bytes.size());
    const std::string path = output() + "/bpe_tokenizer.json";
    return tokenizer::tokenizer_from_json(read_file(path, ExitCode::data), path)
        ->decode(std::vector<int32_t>(ids.begin(), ids.end()));
  }

  const ScratchFolder folder_;
};

TEST_F(SeparatorsTest, ALineThatIsASeparatorEndsADocument) {
  const auto separated = [&](const std::string& bytes) {
    return documents(reader({file("a.txt", bytes)}, {"<|endoftext|>", "</s>"}));
  };
  EXPECT_EQ(separated("one\n<|endoftext|>\ntwo\n</s>\nthree"), (Texts{"one\n", "two\n", "three"}));
  EXPECT_EQ(separated("<|endoftext|>\n\none\n<|endoftext|>\n\n<|endoftext|>\n\n two<|endoftext|>"),
            (Texts{"one\n", " two<|endoftext|>"}));  // the last is no line of its own
  EXPECT_EQ(separated("one\r\n<|endoftext|>\r\n\r\ntwo\r\n<|endoftext|>"), (Texts{"one\n", "two\n"}));
  EXPECT_EQ(separated("one\r<|endoftext|>\rtwo"), (Texts{"one\n", "two"}));
  EXPECT_EQ(separated("a <|endoftext|>\n<|endoftext|> b\n<|endoftext|><|endoftext|>\n"),
            Texts{"a <|endoftext|>\n<|endoftext|> b\n<|endoftext|><|endoftext|>\n"});
  EXPECT_EQ(documents(reader({file("a.txt", "one\n<|endoftext|>\ntwo")}, {})), Texts{"one\n<|endoftext|>\ntwo"});
  const Texts json = documents(reader({file("a.jsonl", "{\"text\": \"a\\n<|endoftext|>\\nb\"}\n")}, {"<|endoftext|>"}));
  EXPECT_EQ(json, Texts{"a\n<|endoftext|>\nb"});  // a line of JSON says itself where its text ends
}

TEST_F(SeparatorsTest, SeparatorsAreCountedAndPlacesAreThoseOfTheFile) {
  DocumentReader input =
      reader({file("a.txt", "\xEF\xBB\xBFone\n<|endoftext|>\n\ntwo\r\n\r\nx"), file("b.txt", "three\n<|endoftext|>")},
             {"<|endoftext|>"});
  const Chunk chunk = *input.next();
  EXPECT_EQ(chunk.text, "one\ntwo\n\nxthree\n");
  EXPECT_EQ(chunk.parts.at(1).document, 22);  // behind the mark, "one", the line and the empty one
  EXPECT_TRUE(input.place(chunk, 9).ends_with("a.txt: byte 29")) << input.place(chunk, 9);
  EXPECT_FALSE(input.next());
  EXPECT_EQ(input.separators(), (std::map<std::string, int64_t>{{"<|endoftext|>", 2}}));
}

// Wherever a block that is read at once may end.
TEST_F(SeparatorsTest, ASeparatorThatWasReadInPartsIsOne) {
  for (const size_t size : {65520, 65530, 65535, 65536, 131070, 524287, 524288}) {
    const std::string before(size, 'x'), after(70'000, 'y');
    const std::string path = file("a.txt", before + "\n<|endoftext|>\n" + after + "\n<|endoftext|>\r\n" + before);
    EXPECT_TRUE(documents(reader({path}, {"<|endoftext|>"})) == (Texts{before + "\n", after + "\n", before})) << size;
  }
}

TEST_F(SeparatorsTest, TheLineEndsOfOldMacsBecomeLF) {
  DocumentReader input = reader({file("a.txt", "one\rtwo\r\rthree"), file("b.txt", "one\rtwo\n")}, {});
  EXPECT_EQ(documents(std::move(input)), (Texts{"one\ntwo\n\nthree", "one\rtwo\n"}));
  DocumentReader counted = reader({file("a.txt", "one\rtwo\r"), file("b.txt", "one\n")}, {});
  while (counted.next()) {}
  EXPECT_EQ(counted.cr_files(), 1);
}

TEST_F(SeparatorsTest, LinesThatAreTheEndOfTextSeparateDocuments) {
  const std::string path = file("a.txt", "one\n<|endoftext|>\ntwo\n<|endoftext|>\none\n<|endoftext|>\n");
  PrepareOptions o = options(path, "bpe:300");
  data::Metadata metadata = prepare(o, output());
  EXPECT_EQ(decoded(), "one\n<|endoftext|>two\n<|endoftext|>one\n<|endoftext|>");
  EXPECT_EQ(metadata.train.documents, 3);
  EXPECT_EQ(metadata.ends_as_text, 0);
  EXPECT_EQ(describe_files(metadata),
            "3 lines of <|endoftext|> separate documents and are no text (document_separator: none keeps them)");
  EXPECT_EQ(data::read_metadata(output() + "/tokens_bpe_metadata.json"), metadata);
  o.deduplicate = Deduplicate::exact;  // also within a file
  EXPECT_EQ(prepare(o, output()).train.documents, 2);
  o.deduplicate = Deduplicate::none;
  o.document_separator = "none";
  metadata = prepare(o, output());
  EXPECT_EQ(metadata.train.documents, 1);
  EXPECT_EQ(metadata.ends_as_text, 3);
  o.document_separator = "two";
  EXPECT_EQ(prepare(o, output()).train.documents, 2);
  for (const char* none : {"", "a\nb"}) {
    o.document_separator = none;
    EXPECT_ERROR(prepare(o, output()), ExitCode::config, "document_separator: it is");
  }
}

TEST_F(SeparatorsTest, DocumentsAreSeparatedForTokenizersWithoutAnEndOfText) {
  for (const char* tokenizer : {"char", "byte"}) {
    PrepareOptions o = options(file("a.txt", "one\n<|endoftext|>\ntwo\n"), tokenizer);
    test::CapturedLog captured;
    const data::Metadata metadata = prepare(o, output());
    const std::string log = captured.text();
    EXPECT_EQ(decoded(), "one\ntwo\n") << tokenizer;
    EXPECT_EQ(metadata.train.documents, 2) << tokenizer;
    EXPECT_NE(log.find("nothing takes the place of the lines that separate documents"), std::string::npos) << log;
  }
}

// A begin-of-text name is none, and GPT-2's stays one beside a tokenizer's own.
TEST(Separators, AreTheEndOfTextOfGpt2AndTheTokenizersOwn) {
  EXPECT_EQ(separators("auto", nullptr), Texts{"<|endoftext|>"});
  EXPECT_EQ(separators("auto", tokenizer::make_tokenizer("byte", {}).get()), Texts{"<|endoftext|>"});
  EXPECT_EQ(separators("none", nullptr), Texts{});
  EXPECT_EQ(separators("***", nullptr), Texts{"***"});
  EXPECT_EQ(count_ends_in("a<e><e> <e\n<f>", {"<e>", "<f>"}), 3);
}

}  // namespace
}  // namespace gpt::prepare
