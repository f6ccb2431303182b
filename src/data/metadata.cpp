#include "gpt/data/metadata.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/data/token_file.h"

namespace gpt::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kConversations = "conversations";
constexpr int64_t kLargestCount = int64_t{1} << 60;  // sums and sizes in bytes stay within 64 bits

// The value as a message shows it: never long, and never bytes that are not text.
std::string shown(const json& value) {
  constexpr size_t kLongest = 60;
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

// An object of the file under its name: "train", and for the file itself "".
class Section {
 public:
  Section(const json& object, std::string name, const std::string& origin)
      : object_(object), name_(std::move(name)), origin_(origin) {
    if (!object.is_object()) fail(origin_, fmt::format("'{}' is {}; an object is needed", name_, shown(object)));
  }

  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  int64_t whole_number(const char* key, int64_t least, int64_t most) const {
    const json* value = find(key);
    if (!value) return 0;
    // A number beyond 64 signed bits is held as unsigned.
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(most)
                                                  : value->is_number_integer() && value->get<int64_t>() <= most;
    if (!fits || value->get<int64_t>() < least) {
      refuse(key, *value, fmt::format("a whole number from {} to {}", least, most));
    }
    return value->get<int64_t>();
  }

  int64_t count(const char* key) const { return whole_number(key, 0, kLargestCount); }

  std::string text(const char* key) const {
    const json* value = find(key);
    if (!value) return "";
    if (!value->is_string()) refuse(key, *value, "a string");
    return value->get<std::string>();
  }

  std::string choice(const char* key, const char* one, const char* other) const {
    const std::string value = text(key);
    if (!value.empty() && value != one && value != other)
      refuse(key, *find(key), fmt::format("'{}' or '{}'", one, other));
    return value;
  }

  std::string hash(const char* key) const {
    const std::string value = text(key);
    const bool hexadecimal = value.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!value.empty() && (value.size() != 32 || !hexadecimal)) refuse(key, *find(key), "32 hexadecimal digits");
    return value;
  }

  const json& list(const char* key) const {
    static const json kEmpty = json::array();
    const json* value = find(key);
    if (!value) return kEmpty;
    if (!value->is_array()) refuse(key, *value, "a list");
    return *value;
  }

 private:
  [[noreturn]] void refuse(const char* key, const json& value, const std::string& needed) const {
    fail(origin_,
         fmt::format("'{}{}{}' is {}; {} is needed", name_, name_.empty() ? "" : ".", key, shown(value), needed));
  }

  const json& object_;
  const std::string name_;
  const std::string& origin_;
};

SplitCounts split_counts(const Section& root, const char* key, const std::string& origin) {
  const json* value = root.find(key);
  if (!value) return {};
  const Section section(*value, key, origin);
  return {.tokens = section.count("tokens"),
          .documents = section.count("documents"),
          .bytes = section.count("bytes"),
          .learned = section.count("learned")};
}

ConversationCounts conversation_counts(const Section& root, const std::string& origin) {
  const json* value = root.find(kConversations);
  if (!value) return {};
  const Section section(*value, kConversations, origin);
  ConversationCounts counts{.shape = section.text("shape"),
                            .learn = section.text("learn"),
                            .chat_template = section.text("chat_template"),
                            .marks_hash = section.hash("marks_hash"),
                            .turns = section.count("turns"),
                            .answers = section.count("answers"),
                            .unanswered = section.count("unanswered"),
                            .last_answer_only = section.count("last_answer_only")};
  if (counts.shape.empty() || counts.marks_hash.empty())
    fail(origin, fmt::format("'{}' lacks 'shape' or 'marks_hash'", kConversations));
  return counts;
}

std::map<std::string, int64_t> counts_by_text(const Section& root, const char* key, const std::string& origin) {
  std::map<std::string, int64_t> counts;
  const json* value = root.find(key);
  if (!value) return counts;
  const Section section(*value, key, origin);
  for (const auto& entry : value->items()) counts[entry.key()] = section.count(entry.key().c_str());
  return counts;
}

ordered_json to_object(const SplitCounts& counts) {
  ordered_json object = {{"tokens", counts.tokens}, {"documents", counts.documents}, {"bytes", counts.bytes}};
  if (counts.learned > 0) object["learned"] = counts.learned;
  return object;
}

ordered_json to_object(const ConversationCounts& counts, int64_t conversations) {
  return {{"shape", counts.shape},
          {"number", conversations},  // for people; nothing reads it
          {"turns", counts.turns},
          {"learn", counts.learn},
          {"answers", counts.answers},
          {"unanswered", counts.unanswered},
          {"last_answer_only", counts.last_answer_only},
          {"chat_template", counts.chat_template},
          {"marks_hash", counts.marks_hash}};
}

// The hash of all but the hash itself, however it is spaced and ordered: what finds a damaged key, whose value would not be missed.
std::string hash_of_rest(json object) {
  object.erase("metadata_hash");
  return hash128(object.dump());
}

json parsed(std::string_view text, const std::string& origin) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::exception& e) {
    const auto* parse_error = dynamic_cast<const json::parse_error*>(&e);
    fail(origin, parse_error ? fmt::format("invalid JSON at byte {}", parse_error->byte) : "invalid JSON");
  }
  if (!object.is_object()) fail(origin, "not a JSON object; metadata is {\"vocab_size\": N, \"dtype\": \"uint16\"}");
  return object;
}

// Bytes of a token id; 0 where the file does not say.
int width_of(const Section& root, int64_t vocab_size, const std::string& origin) {
  const std::string dtype = root.choice("dtype", "uint16", "uint32");
  if (dtype.empty()) return 0;
  const int bytes = dtype == "uint32" ? 4 : 2;
  if (bytes >= width_for(vocab_size)) return bytes;
  fail(origin,
       fmt::format("'dtype' is \"uint16\", which cannot hold the ids of a 'vocab_size' of {}; it must be \"uint32\"",
                   vocab_size));
}

void read_splits(Metadata& metadata, const Section& root, const std::string& origin) {
  metadata.train = split_counts(root, "train", origin);
  metadata.validation = split_counts(root, "validation", origin);
  if (metadata.train.tokens > 0 || metadata.validation.tokens == 0) return;
  fail(origin, fmt::format("'validation.tokens' is {} but 'train.tokens' is 0; the bin begins with the training tokens",
                           metadata.validation.tokens));
}

void read_files(Metadata& metadata, const Section& root, const std::string& origin) {
  for (const json& entry : root.list("sources")) {
    const Section source(entry, "sources", origin);
    metadata.sources.push_back({source.text("path"), source.count("bytes")});
  }
  for (const json& entry : root.list("skipped")) {
    if (!entry.is_string()) fail(origin, fmt::format("'skipped' holds {}; a path is needed", shown(entry)));
    metadata.skipped.push_back(entry.get<std::string>());
  }
}

}  // namespace

Metadata parse_metadata(std::string_view text, const std::string& origin) {
  const json object = parsed(text, origin);
  const Section root(object, "", origin);
  if (!root.find("vocab_size"))
    fail(origin, "'vocab_size' is missing; metadata is {\"vocab_size\": N, \"dtype\": \"uint16\"}");

  Metadata metadata;
  metadata.vocab_size = root.whole_number("vocab_size", 1, std::numeric_limits<int32_t>::max());
  metadata.width_bytes = width_of(root, metadata.vocab_size, origin);
  metadata.tokenizer = root.text("tokenizer");
  metadata.tokenizer_hash = root.hash("tokenizer_hash");
  metadata.bin_hash = root.hash("bin_hash");
  if (const std::string own = root.hash("metadata_hash"); !own.empty() && own != hash_of_rest(object)) {
    fail(origin,
         "it is not as it was written (its own hash differs); prepare the text again, or remove 'metadata_hash' if the "
         "change is yours");
  }
  read_splits(metadata, root, origin);
  metadata.conversations = conversation_counts(root, origin);
  metadata.split = root.choice("split", "documents", "tokens");
  metadata.invalid_utf8_bytes = root.count("invalid_utf8_bytes");
  metadata.crlf_files = root.count("crlf_files");
  metadata.byte_order_mark_files = root.count("byte_order_mark_files");
  metadata.json_files = root.count("json_files");
  metadata.cr_files = root.count("cr_files");
  metadata.separators = counts_by_text(root, "separators", origin);
  metadata.ends_as_text = root.count("ends_as_text");
  metadata.repeated_documents = root.count("repeated_documents");
  metadata.replaced_characters = root.count("replaced_characters");
  read_files(metadata, root, origin);
  return metadata;
}

ConversationCounts& ConversationCounts::operator+=(const ConversationCounts& part) {
  turns += part.turns;
  answers += part.answers;
  unanswered += part.unanswered;
  last_answer_only += part.last_answer_only;
  return *this;
}

int64_t training_tokens(int64_t tokens, double validation_fraction) {
  return static_cast<int64_t>(static_cast<double>(tokens) * (1 - validation_fraction));
}

Metadata read_metadata(const std::string& path) {
  const MappedFile file(path, ExitCode::data);  // mapped: a bin that is named by mistake is refused at its first byte
  return parse_metadata({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

std::string to_json(const Metadata& metadata) {
  ordered_json object = {{"vocab_size", metadata.vocab_size}};
  if (metadata.width_bytes > 0) object["dtype"] = metadata.width_bytes == 2 ? "uint16" : "uint32";
  const auto add_text = [&object](const char* key, const std::string& text) {
    if (!text.empty()) object[key] = text;
  };
  add_text("tokenizer", metadata.tokenizer);
  add_text("tokenizer_hash", metadata.tokenizer_hash);
  add_text("bin_hash", metadata.bin_hash);
  object["train"] = to_object(metadata.train);
  object["validation"] = to_object(metadata.validation);
  if (!metadata.conversations.shape.empty()) {
    object[kConversations] =
        to_object(metadata.conversations, metadata.train.documents + metadata.validation.documents);
  }
  add_text("split", metadata.split);
  const int64_t tokens = metadata.train.tokens + metadata.validation.tokens;
  const int64_t bytes = metadata.train.bytes + metadata.validation.bytes;
  if (tokens > 0 && bytes > 0 && metadata.conversations.shape.empty()) {  // for people; nothing reads it
    object["bytes_per_token"] = std::round(1000.0 * static_cast<double>(bytes) / static_cast<double>(tokens)) / 1000;
  }
  object["invalid_utf8_bytes"] = metadata.invalid_utf8_bytes;
  const auto add_count = [&object](const char* key, int64_t count) {
    if (count > 0) object[key] = count;
  };
  add_count("crlf_files", metadata.crlf_files);
  add_count("byte_order_mark_files", metadata.byte_order_mark_files);
  add_count("json_files", metadata.json_files);
  add_count("cr_files", metadata.cr_files);
  if (!metadata.separators.empty()) object["separators"] = metadata.separators;
  add_count("ends_as_text", metadata.ends_as_text);
  add_count("repeated_documents", metadata.repeated_documents);
  add_count("replaced_characters", metadata.replaced_characters);
  object["sources"] = ordered_json::array();
  for (const SourceFile& source : metadata.sources) {
    object["sources"].push_back({{"path", source.path}, {"bytes", source.bytes}});
  }
  if (!metadata.skipped.empty()) object["skipped"] = metadata.skipped;
  const auto text = [&] {
    return object.dump(2, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n";
  };
  object["metadata_hash"] = hash_of_rest(json::parse(text()));  // the hash of what will be read
  return text();
}

}  // namespace gpt::data
