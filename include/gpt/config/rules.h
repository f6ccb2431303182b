// What goes with what, as one table: which settings exclude each other and how that is cured, and which have no effect. Validation, a run
// that has met its device and its data, gpt-diagnose, gpt-bench and the reference in configs/README.md read it; the rows stand
// beside src/config/rule.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/facts.h"
#include "gpt/config/option.h"
#include "gpt/config/origins.h"

namespace gpt::config {

// A contradiction: what is wrong and what to do, for people, without a place.
struct Refusal {
  std::vector<std::string> keys;
  std::string why, advice;
  std::string text() const { return advice.empty() ? why : why + "; " + advice; }
  bool operator==(const Refusal&) const = default;
};

// The first contradiction between settings, or with the facts.
std::optional<Refusal> find_refusal(const Config& config, const Facts& facts = {});

// Throws gpt::Error(config) with the first contradiction, placed where one of its keys was written, or else at `origin`, or at the key
// itself where that is empty.
void require_agreement(const Config& config, const Facts& facts, const std::string& origin = "",
                       const Origins& origins = {});

// Keys that change nothing, for one reason.
struct IdleKeys {
  std::vector<std::string> keys;
  std::string why;
};
std::vector<IdleKeys> find_idle(const Config& config, const Facts& facts);

// Changes the configuration until nothing contradicts, by the first cure of each refusal that changes none of the keys that `is_kept`, and
// at most eight times. Returns what it changed, as a person would write it ("training.quantized_forward: none"); nothing where no cure was
// left, and the configuration is then as it was.
using IsKept = std::function<bool(const std::string& key)>;
std::optional<std::vector<std::string>> cure(Config& config, const IsKept& is_kept, const Facts& facts = {});

// Keeps what was written, except where all keys of a contradiction were; `chosen` keys are kept always.
std::optional<std::vector<std::string>> cure_unwritten(Config& config, const Origins& origins,
                                                       const std::vector<std::string>& chosen, const Facts& facts = {});

// A key whose values are alternatives, and what it can be set to, as text: first what switches it off.
struct Technique {
  std::string key;
  std::vector<std::string> values;
};
std::vector<Technique> techniques();

// The keys of a configuration by their names, with values as a person writes them. The configuration must outlive it.
class Keys {
 public:
  explicit Keys(Config& config);
  // Throws gpt::Error(config) for what is no value of the key.
  void set(const std::string& key, const std::string& value);
  std::string value(const std::string& key) const;
  bool needs_section(const std::string& key) const;  // whether the name alone is another key's flag

 private:
  const Option& row(const std::string& key) const;
  std::map<std::string, Option> rows_;
};

// Which techniques exclude each other and which keys are idle when, in Markdown.
std::string rules_markdown();

}  // namespace gpt::config
