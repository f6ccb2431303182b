// Configuration in and out: YAML file, then flags on top, checked against the rows of option.h, then across sections.
// Every fault is one line `file:line:col: what, got, nearest right key` with exit code 2, before anything is allocated.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/arguments.h"
#include "gpt/config/config.h"
#include "gpt/config/option.h"
#include "gpt/config/setting.h"

namespace gpt::config {

// The command line of gpt-train (and gpt-diagnose): --config FILE, any key as --section.key VALUE, or by its last name;
// --print-config, --print-reference, --help, --version. Flags take precedence over the file.
struct CommandLine {
  Config config;
  Origins origins;                 // what was written out, and where
  std::string config_path;         // empty without --config
  std::vector<std::string> notes;  // what of it does not count, and why: for people, to be logged
  bool handled = false;            // --help, --version, --print-config or --print-reference was answered: exit 0

  bool has(const std::string& key) const { return origins.count(key) > 0; }
  bool has_flag(const std::string& key) const { return has(key) && origins.at(key).starts_with("--"); }
};
// `complete` sets what depends on the machine and on training.init_from, before the whole is validated and shown.
using Completion = std::function<void(Config& config, const Origins& origins)>;
// `program_rows` belong to the program alone, not to the configuration (gpt-diagnose --json).
CommandLine parse_command_line(int argc, const char* const* argv, const std::string& program,
                               const std::string& description, const std::vector<Option>& program_rows = {},
                               const Completion& complete = {}, const Guide& guide = {});

// A YAML text into `config` (already holding defaults). `origin` names it in errors.
Origins read_yaml(std::string_view yaml, const std::string& origin, Config& config);

// Contradictions between keys. A fault is placed where one of its keys was written, otherwise at `origin`.
void validate(const Config& config, const std::string& origin, const Origins& origins = {});
bool is_valid(const Config& config);                                 // has none
void require_data(const Config& config, const std::string& origin);  // for programs that cannot do without

// The effective configuration as YAML with each key's help as a comment; read_yaml(dump(c)) == c.
std::string dump(const Config& config);

// What another configuration changes, row by row: for a run that is taken up again.
struct Change {
  std::string key;
  std::string before;
  std::string after;
  bool safe_on_resume;
};
std::vector<Change> difference(const Config& before, const Config& after);

// The reference in configs/README.md, in Markdown.
std::string reference_markdown();

}  // namespace gpt::config
