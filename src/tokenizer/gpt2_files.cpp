#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "bpe_vocabulary.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/core/installed_data.h"
#include "gpt/core/remedies.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;

struct Merge {
  std::string_view left, right;
};

// "#version: 0.2", then "left right" on each line.
std::vector<Merge> read_merges(std::string_view text, const std::string& origin) {
  std::vector<Merge> merges;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < line.size();
    if (!is_pair || line.find(' ', space + 1) != std::string_view::npos) {
      throw Error(ExitCode::data,
                  fmt::format("{}: line {} of the merges is {}; two tokens separated by a space are needed", origin,
                              number, shown(std::string(line))));
    }
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return merges;
}

// The files do not say which tokens are special. One that is neither a character nor made by a merge cannot come from
// text.
bool is_special(const std::string& token, const std::unordered_set<std::string>& products, const std::string& origin) {
  if (token.empty() || utf8::decode(token, 0).bytes == token.size() || products.count(token) != 0) return false;
  if (token.starts_with('<') && token.ends_with('>')) return true;
  throw Error(ExitCode::data,
              fmt::format("{}: token {} is neither a byte nor made by a merge: vocabulary and merges do not belong "
                          "together",
                          origin, shown(token)));
}

std::string checked_file(const std::string& name, const char* expected_hash) {
  const std::string path = installed_data(name);
  if (path.empty()) {
    throw Error(ExitCode::data,
                fmt::format("GPT-2's vocabulary (data/{}) is not installed; {}, or use another tokenizer", name,
                            remedies().data));
  }
  std::string text = read_file(path, ExitCode::data, kTokenizerSize);
  if (hash128(text) != expected_hash) {
    throw Error(ExitCode::data,
                fmt::format("{}: its {} bytes are not GPT-2's vocabulary; {}", path, text.size(), remedies().data));
  }
  return text;
}

}  // namespace

BpeModel parse_gpt2_files(std::string_view encoder_json, std::string_view vocab_bpe, const std::string& origin) {
  const json ids = parse_vocabulary_json(encoder_json, origin);
  if (!ids.is_object()) {
    throw Error(ExitCode::data, fmt::format("{}: the vocabulary is {}; an object of tokens and ids is needed", origin,
                                            ids.type_name()));
  }
  const std::vector<Merge> merges = read_merges(vocab_bpe, origin);
  std::unordered_set<std::string> products;
  for (const auto& [left, right] : merges) products.insert(std::string(left).append(right));

  BpeModel model;
  BpeVocabulary vocabulary(model, TokenSpelling::bytes, origin);
  for (const auto& [token, id] : ids.items()) {
    if (is_special(token, products, origin)) {
      vocabulary.add_special(token, id);
    } else {
      vocabulary.add(token, id);
    }
  }
  std::sort(model.special_tokens.begin(), model.special_tokens.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const auto& [left, right] : merges) vocabulary.add_merge(std::string(left), std::string(right));
  return model;
}

BpeModel gpt2_vocabulary() {
  const std::string encoder = checked_file("gpt2/encoder.json", "907aa883a1f3f2504594f2ded8b31025");
  const std::string merges = checked_file("gpt2/vocab.bpe", "5caa565dbb3b366be1a102e27c272620");
  return parse_gpt2_files(encoder, merges, "gpt2");
}

}  // namespace gpt::tokenizer
