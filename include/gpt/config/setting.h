// A setting is a key with its value as text and where it was written. The YAML reader and the command line both produce
// settings, so that presets, duplicates, ranges and error messages are treated once, whatever the source.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/node.h"
#include "gpt/config/option.h"
#include "gpt/config/origins.h"

namespace gpt::config {

struct Setting {
  std::string key = {};       // "training.batch_size", whatever spelling was used
  std::string spelling = {};  // an alias, where it was written so
  std::string text = {};
  bool quoted = false;
  std::string written = {};               // where the key stands: "file:line:col" or "--flag"
  std::string where = {};                 // where its value stands
  std::shared_ptr<const Node> node = {};  // instead of text, where the value is a list or a map
};

// An option under one of its spellings; `alias` is null for its own name.
struct Spelling {
  const Option* option = nullptr;
  const Alias* alias = nullptr;
};

// The option that `name` spells in `section`; `option` is null when there is none.
Spelling find_option(const std::vector<Option>& rows, std::string_view section, std::string_view name);

// Makes a setting of what was written under `spelling`, translating an alias's values, and appends it.
// A second setting of the same key from the same source is an error, unless it is a list of texts.
void add_setting(std::vector<Setting>& settings, const Spelling& spelling, Setting setting);

// Assigns the settings of these rows, the later ones winning.
Origins apply_settings(const std::vector<Setting>& settings, const std::vector<Option>& rows);

// The same for a configuration: the preset first, then every key written out, then what follows from them.
Origins apply_settings(const std::vector<Setting>& settings, Config& config);

// The settings in a YAML text, aliases and duplicates resolved, values not yet checked.
std::vector<Setting> yaml_settings(std::string_view yaml, const std::string& origin);

}  // namespace gpt::config
