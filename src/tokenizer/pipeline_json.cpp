#include "pipeline_json.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "gpt/core/utf8.h"
#include "matcher.h"
#include "oniguruma.h"
#include "unicode_class.h"
#include "unicode_sets.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;

constexpr SplitPattern kPatterns[] = {SplitPattern::gpt2, SplitPattern::cl100k, SplitPattern::llama3,
                                      SplitPattern::qwen2, SplitPattern::o200k};

std::optional<SplitPattern> known_pattern(const JsonNode& pattern) {
  for (const SplitPattern known : kPatterns) {
    if (pattern.value() == json{{"Regex", regular_expression(known)}}) return known;
  }
  return std::nullopt;
}

std::shared_ptr<const Matcher> read_matcher(const JsonNode& pattern) {
  if (!pattern.value().is_object() || pattern.value().size() != 1)
    pattern.malformed("{\"String\": ...} or {\"Regex\": ...}");
  if (const JsonNode text = pattern["String"]; !text.is_null()) {
    if (text.text().empty()) text.malformed("a text that is not empty");
    return match_text(text.text());
  }
  const JsonNode expression = pattern["Regex"];
  if (expression.is_null()) pattern.malformed("{\"String\": ...} or {\"Regex\": ...}");
  try {
    return match_expression(expression.text());
  } catch (const PatternError& error) { expression.refuse(error.what()); }
}

// The one character of a text.
std::string read_character(const JsonNode& node) {
  const std::string& text = node.text();
  if (text.empty() || utf8::last_character(text) != 0) node.malformed("one character");
  return text;
}

// The node, or the members of a Sequence, those of sequences in it included.
void append_steps(const JsonNode& node, const std::string& list, std::vector<JsonNode>& steps) {
  constexpr size_t kMostSteps = 100;
  if (steps.size() >= kMostSteps) node.refuse(fmt::format("there are more than {} steps", kMostSteps));
  if (!node.is_type("Sequence")) return steps.push_back(node);
  node.must_have_only({"type", list});
  for (const JsonNode& step : node[list].elements()) append_steps(step, list, steps);
}

std::vector<JsonNode> steps_of(const JsonNode& node, const std::string& list) {
  std::vector<JsonNode> steps;
  if (!node.is_null()) append_steps(node, list, steps);
  return steps;
}

// Normalizers

std::optional<UnicodeForm> unicode_form(const JsonNode& node) {
  if (node.is_type("NFC")) return UnicodeForm::nfc;
  if (node.is_type("NFD")) return UnicodeForm::nfd;
  if (node.is_type("NFKC")) return UnicodeForm::nfkc;
  if (node.is_type("NFKD")) return UnicodeForm::nfkd;
  return std::nullopt;
}

TextChange read_change(const JsonNode& node) {
  if (const std::optional<UnicodeForm> form = unicode_form(node)) {
    node.must_have_only({"type"});
    return to_unicode_form(*form);
  }
  if (node.is_type("Prepend")) {
    node.must_have_only({"type", "prepend"});
    return prepend(node["prepend"].text());
  }
  if (node.is_type("Replace")) {
    node.must_have_only({"type", "pattern", "content"});
    return replace(read_matcher(node["pattern"]), node["content"].text());
  }
  if (node.is_type("Strip")) {
    node.must_have_only({"type", "strip_left", "strip_right"});
    return strip(node["strip_left"].flag(false), node["strip_right"].flag(false));
  }
  node.unsupported("NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip and sequences of them");
}

// Whether what begins the text begins it afterwards as well.
bool keeps_start(const JsonNode& change) {
  if (change.is_type("Replace")) return change["content"].value() != "";
  return !change.is_type("Prepend") && !change.is_type("Strip");
}

// Pre-tokenizers

bool is_number(char32_t value) {
  return unicode::character_class(value) == unicode::CharacterClass::number ||
         unicode::contains(unicode::kLaterNumbers, value);
}
bool is_punctuation(char32_t value) { return unicode::contains(unicode::kPunctuation, value); }
bool is_white_space(char32_t value) { return unicode::character_class(value) == unicode::CharacterClass::space; }

SplitBehavior read_behavior(const JsonNode& behavior) {
  constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {{"Isolated", SplitBehavior::isolated},
                                                                  {"Removed", SplitBehavior::removed},
                                                                  {"MergedWithPrevious",
                                                                   SplitBehavior::merged_with_previous},
                                                                  {"MergedWithNext", SplitBehavior::merged_with_next},
                                                                  {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [name, value] : kBehaviors) {
    if (behavior.value() == name) return value;
  }
  behavior.malformed("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

TextSplitter read_metaspace(const JsonNode& step, bool start_is_known) {
  step.must_have_only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const JsonNode name = step["prepend_scheme"];
  if (!name.is_null()) name.must_be({"always", "first", "never"});
  PrependScheme scheme = PrependScheme::always;
  if (name.value() == "first") scheme = PrependScheme::first;
  if (name.value() == "never" || !step["add_prefix_space"].flag(true)) scheme = PrependScheme::never;
  if (scheme == PrependScheme::first && !start_is_known)
    name.refuse("a normalizer puts something before the start of the text, or takes it away");
  return metaspace(read_character(step["replacement"]), scheme, step["split"].flag(true));
}

TextSplitter read_split(const JsonNode& split) {
  split.must_have_only({"type", "pattern", "behavior", "invert"});
  const std::optional<SplitPattern> known = known_pattern(split["pattern"]);
  return split_at(known ? match_pieces(*known) : read_matcher(split["pattern"]), read_behavior(split["behavior"]),
                  split["invert"].flag(false));
}

// As the regular expressions of Rust see \w, in which two characters are that join others, and six numbers are not.
TextSplitter words_and_signs() {
  const std::string word = R"([\w\x{200C}\x{200D}&&[^\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}]])";
  return split_at(match_expression(fmt::format(R"({0}+|(?:(?!{0})\S)+)", word)), SplitBehavior::removed,
                  /*invert=*/true);
}

TextSplitter read_splitter(const JsonNode& step, bool start_is_known) {
  if (step.is_type("Split")) return read_split(step);
  if (step.is_type("Metaspace")) return read_metaspace(step, start_is_known);
  if (step.is_type("Digits")) {
    step.must_have_only({"type", "individual_digits"});
    const bool individual = step["individual_digits"].flag(false);
    return split_at(match_character(is_number), individual ? SplitBehavior::isolated : SplitBehavior::contiguous,
                    false);
  }
  if (step.is_type("Punctuation")) {
    step.must_have_only({"type", "behavior"});
    const JsonNode behavior = step["behavior"];
    return split_at(match_character(is_punctuation),
                    behavior.is_null() ? SplitBehavior::isolated : read_behavior(behavior), false);
  }
  if (step.is_type("ByteLevel")) {
    step.must_have_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return byte_level(step["add_prefix_space"].flag(true), step["use_regex"].flag(true), /*spell=*/true);
  }
  if (step.is_type("WhitespaceSplit") || step.is_type("Whitespace")) {
    step.must_have_only({"type"});
    if (step.is_type("Whitespace")) return words_and_signs();
    return split_at(match_character(is_white_space), SplitBehavior::removed, false);
  }
  step.unsupported(
      "ByteLevel, Digits, Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit and sequences of them");
}

// Whether a place where two characters are never in one piece remains one behind such a step.
bool splits_by_class(const JsonNode& step) {
  if (step.is_type("Digits")) return true;
  const json& behavior = step["behavior"].value();
  return step.is_type("Punctuation") && (behavior.is_null() || behavior == "Isolated" || behavior == "Contiguous");
}

// A Split whose pieces are those of a known pattern. The patterns match every character, so keeping the matches is the
// same as isolating them.
std::optional<SplitPattern> pieces_of(const JsonNode& step) {
  if (!step.is_type("Split")) return std::nullopt;
  const json &behavior = step["behavior"].value(), &invert = step["invert"].value();
  const bool isolates = behavior == "Isolated" || (behavior == "Removed" && invert == true);
  return isolates ? known_pattern(step["pattern"]) : std::nullopt;
}

// How many of the steps are left to be read once the model has taken over the last ones, which split as it does.
size_t give_to_model(const std::vector<JsonNode>& steps, TokenizerPipeline& pipeline) {
  const JsonNode& last = steps.back();
  read_splitter(last, true);  // checks it
  const bool prefixes = last["add_prefix_space"].flag(true);
  const size_t before = steps.size() - 1;
  std::optional<SplitPattern> split;
  if (last["use_regex"].flag(true)) {
    split = SplitPattern::gpt2;
  } else if (before > 0 && !prefixes) {
    split = pieces_of(steps[before - 1]);
  }
  const bool takes_two = split && !last["use_regex"].flag(true);
  if (takes_two) read_split(steps[before - 1]);
  pipeline.splits_as_model = split.has_value();
  pipeline.model.split = split.value_or(SplitPattern::gpt2);
  pipeline.prefixes_space = prefixes;
  const size_t left = takes_two ? before - 1 : before;
  pipeline.may_be_cut =
      split && !prefixes &&
      std::all_of(steps.begin(), std::next(steps.begin(), static_cast<ptrdiff_t>(left)), splits_by_class);
  return left;
}

void read_decoder_step(const JsonNode& step, bool is_first, TokenDecoder& decoder) {
  if (step.is_type("Fuse") || step.is_type("ByteFallback")) {
    step.must_have_only({"type"});
    if (step.is_type("Fuse")) return decoder.add_fuse();
    if (decoder.fuses()) step.refuse("it comes after Fuse");
    return decoder.add_byte_fallback();
  }
  if (step.is_type("Strip")) {
    step.must_have_only({"type", "content", "start", "stop"});
    if (step["stop"].value() != 0) step["stop"].refuse("the end of a text that grows is not known");
    if (!step["start"].value().is_number_unsigned()) step["start"].malformed("a number");
    return decoder.add_strip(read_character(step["content"]), step["start"].value().get<size_t>());
  }
  if (decoder.fuses() || !(is_first || step.is_type("Replace"))) step.refuse("it comes after another decoder");
  if (step.is_type("Replace")) {
    step.must_have_only({"type", "pattern", "content"});
    return decoder.add_replace(read_matcher(step["pattern"]), step["content"].text());
  }
  if (step.is_type("Metaspace")) {
    step.must_have_only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    const bool never = step["prepend_scheme"].value() == "never" || !step["add_prefix_space"].flag(true);
    return decoder.add_metaspace(read_character(step["replacement"]), !never);
  }
  step.unsupported("ByteFallback, Fuse, Metaspace, Replace, Strip and sequences of them");
}

}  // namespace

void read_normalizer(const JsonNode& normalizer, TokenizerPipeline& pipeline) {
  for (const JsonNode& step : steps_of(normalizer, "normalizers")) {
    pipeline.changes.push_back(read_change(step));
    pipeline.keeps_start = pipeline.keeps_start && keeps_start(step);
    pipeline.only_unicode_forms = pipeline.only_unicode_forms && unicode_form(step);
  }
}

void read_pre_tokenizer(const JsonNode& pre_tokenizer, TokenizerPipeline& pipeline) {
  const std::vector<JsonNode> steps = steps_of(pre_tokenizer, "pretokenizers");
  const auto is_byte_level = [](const JsonNode& step) { return step.is_type("ByteLevel"); };
  const auto byte_levels = std::count_if(steps.begin(), steps.end(), is_byte_level);
  if (byte_levels > 1) pre_tokenizer.refuse("it has several ByteLevel");
  pipeline.is_byte_level = byte_levels == 1;
  const bool ends_in_bytes = pipeline.is_byte_level && is_byte_level(steps.back());
  pipeline.is_spelled = pipeline.is_byte_level && !ends_in_bytes;
  const size_t left = ends_in_bytes ? give_to_model(steps, pipeline) : steps.size();
  for (size_t i = 0; i < left; ++i) pipeline.splitters.push_back(read_splitter(steps[i], pipeline.keeps_start));
  if (pipeline.prefixes_space)
    pipeline.splitters.push_back(byte_level(/*prefix_space=*/true, /*as_gpt2=*/false, /*spell=*/false));
}

void read_post_processor(const JsonNode& processor, TokenizerPipeline& pipeline) {
  for (const JsonNode& step : steps_of(processor, "processors")) {
    const bool adds =
        step.is_type("TemplateProcessing") || step.is_type("RobertaProcessing") || step.is_type("BertProcessing");
    if (!adds && !step.is_type("ByteLevel"))
      step.unsupported("BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing and sequences of them");
    pipeline.adds_tokens = pipeline.adds_tokens || adds;
  }
}

void read_decoder(const JsonNode& decoder, TokenizerPipeline& pipeline) {
  const std::vector<JsonNode> steps = steps_of(decoder, "decoders");
  const bool is_of_bytes = !steps.empty() && std::all_of(steps.begin(), steps.end(), [](const JsonNode& step) {
    return step.is_type("ByteLevel") || step.is_type("Fuse");
  }) && steps.front().is_type("ByteLevel");
  if (pipeline.is_byte_level) {
    if (!is_of_bytes) decoder.unsupported("ByteLevel, since the pre-tokenizer has it");
    return;
  }
  if (steps.empty()) decoder.unsupported("ByteFallback, Fuse, Metaspace, Replace, Strip and sequences of them");
  for (size_t i = 0; i < steps.size(); ++i) read_decoder_step(steps[i], i == 0, pipeline.decoder);
}

}  // namespace gpt::tokenizer
