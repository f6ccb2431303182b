#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <utility>

#include "foreign.h"
#include "gpt/config/arguments.h"
#include "gpt/config/load.h"
#include "gpt/config/output_folder.h"
#include "gpt/config/setting.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/installed_data.h"
#include "gpt/core/printable.h"
#include "limits.h"

namespace gpt::config {
namespace {

constexpr const char* kNotes =
    "A key of the configuration may have its section before it: --section.KEY VALUE. In YAML, each key stands below "
    "its section, indented.\n";

// A preset that a flag names is meant as a whole: of what it sets, the file's keys no longer count.
void replace_sizes_by_preset(std::vector<Setting>& from_file, const std::vector<Setting>& from_flags,
                             std::vector<std::string>& notes) {
  const auto preset = std::find_if(from_flags.begin(), from_flags.end(), [](const Setting& flag) {
    return flag.key == "model.preset" && flag.text != "auto" && flag.text != "none";
  });
  if (preset == from_flags.end()) return;
  const std::vector<std::string> keys = keys_of_preset(preset->text);
  std::vector<std::string> replaced;
  std::erase_if(from_file, [&](const Setting& setting) {
    if (std::find(keys.begin(), keys.end(), setting.key) == keys.end()) return false;
    replaced.push_back(setting.key);
    return true;
  });
  if (replaced.empty()) return;
  notes.push_back(
      fmt::format("{} {} takes the place of the file's {}", preset->written, preset->text, fmt::join(replaced, ", ")));
}

// Keys of which only one may be set: a flag for one replaces what the file chose, together with what describes it.
void drop_replaced(std::vector<Setting>& from_file, const std::vector<Setting>& from_flags,
                   std::vector<std::string>& notes) {
  using Keys = std::vector<std::string>;
  static const std::pair<Keys, Keys> kRivals[] = {
      {{"data.text", "data.dataset", "data.bin"},
       {"data.text", "data.dataset", "data.bin", "data.validation_bin", "data.metadata"}},
      {{"training.epochs", "training.max_steps"}, {"training.epochs", "training.max_steps"}},
      {{"training.init_from", "training.resume_from"}, {"training.init_from", "training.resume_from"}},
      {{"training.gradient_accumulation_steps", "training.total_batch_size"},
       {"training.gradient_accumulation_steps", "training.total_batch_size"}},
  };
  const auto is_one_of = [](const Keys& keys) {
    return [&keys](const Setting& setting) { return std::find(keys.begin(), keys.end(), setting.key) != keys.end(); };
  };
  const auto says_something = [](const Setting& setting) { return setting.text != "auto" && setting.text != "none"; };
  for (const auto& [chosen, replaced] : kRivals) {
    if (std::any_of(from_flags.begin(), from_flags.end(),
                    [&](const Setting& setting) { return is_one_of(chosen)(setting) && says_something(setting); })) {
      from_file.erase(std::remove_if(from_file.begin(), from_file.end(), is_one_of(replaced)), from_file.end());
    }
  }
  replace_sizes_by_preset(from_file, from_flags, notes);
  // A run's own effective_config.yaml has both a total and the micro-steps that followed from it: they follow anew from another
  // batch_size.
  const bool has_total = std::any_of(from_file.begin(), from_file.end(), [](const Setting& setting) {
    return setting.key == "training.total_batch_size" && setting.text != "auto";
  });
  if (has_total && std::any_of(from_flags.begin(), from_flags.end(), is_one_of({"training.batch_size"})))
    std::erase_if(from_file, is_one_of({"training.gradient_accumulation_steps"}));
}

std::string section_title(const std::string& section) {
  if (section.empty()) return "Run";
  std::string title = fmt::format("{} ({}:)", section, section);
  title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  return title;
}

// The keys under the names of their sections, below the program's own flags.
std::vector<Section> sections(std::vector<Option> program_rows, const std::vector<Option>& keys) {
  std::vector<Section> result = {{"", std::move(program_rows)}};
  const auto is_taken = [own = result[0].rows](const std::string& name) {
    return std::any_of(own.begin(), own.end(), [&](const Option& row) { return row.name == name; });
  };
  for (Option key : keys) {
    key.is_shadowed = key.is_shadowed || is_taken(key.name);
    const std::string title = section_title(key.section);
    if (result.back().title != title) result.push_back({title, {}});
    result.back().rows.push_back(std::move(key));
  }
  return result;
}

std::optional<std::string> advice_for_flag(const std::string& name) {
  return advice_for(name.substr(name.rfind('.') + 1), /*in_yaml=*/false);
}

std::string flag_for_file(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml") ? "--config" : "--data";
}

bool has_ending(const std::string& path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return path.ends_with(ending); });
}

// A configuration that is not in the working directory may be one of the checkout around build/bin, or an installed one:
// configs/NAME.yaml.
std::string found_or_installed(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  for (const std::filesystem::path& folder : {checkout_folder(), installed_folder()}) {
    const std::string there = (folder / path).lexically_normal().string();
    if (std::filesystem::is_regular_file(there, ignored)) return there;
  }
  std::string near = did_you_mean_path(path);
  if (near.empty() && !path.starts_with('/'))
    near = did_you_mean_path((checkout_folder() / path).lexically_normal().string());
  if (near.empty() && !path.starts_with('/'))
    near = did_you_mean_path((installed_folder() / path).lexically_normal().string());
  if (near.empty()) return path;
  throw Error(ExitCode::config,
              fmt::format("cannot read {}: {}{}", path, std::generic_category().message(ENOENT), near));
}

// The settings of a configuration. What cannot be read as one, and is not called so, was probably meant for another flag.
std::vector<Setting> settings_in(const std::string& path) {
  try {
    return yaml_settings(read_file(path, ExitCode::config, SizeLimit{"a configuration", kMostBytes}), path);
  } catch (const Error& fault) {
    std::error_code ignored;
    if (has_ending(path, {".yaml", ".yml"}) || !std::filesystem::exists(path, ignored)) throw;
    const char* flag = has_ending(path, {".pt"})    ? "continue the run of a checkpoint with --resume_from"
                       : has_ending(path, {".bin"}) ? "train on token ids with --bin"
                                                    : "train on a text with --data";
    throw Error(fault.code(), fmt::format("{}; --config takes YAML: {} {}", fault.what(), flag, path));
  }
}

// A file's name may show that it belongs to another key.
void require_fitting_names(const DataConfig& data, const Origins& origins) {
  const auto refuse = [&origins](const char* key, const std::string& path, const char* what, const char* flag) {
    const auto written = origins.find(key);
    throw Error(ExitCode::config,
                fmt::format("{}: by its name '{}' {}; if so, write {} {}, and otherwise give it another name",
                            written == origins.end() ? key : written->second, path, what, flag, path));
  };
  if (has_ending(data.text, {".bin"})) refuse("data.text", data.text, "holds token ids", "--bin");
  if (has_ending(data.text, {".yaml", ".yml"})) refuse("data.text", data.text, "is a configuration", "--config");
  if (has_ending(data.text, {".pt"})) refuse("data.text", data.text, "is a checkpoint", "--init_from");
  if (has_ending(data.bin, {".txt", ".jsonl", ".ndjson", ".gz", ".zst"}))
    refuse("data.bin", data.bin, "is text", "--data");
}

// What follows from what was written, and from the machine.
void complete_configuration(CommandLine& command, const Completion& complete) {
  Config& config = command.config;
  const bool is_automatic = config.output_dir == kAutomaticFolder;
  if (is_automatic) config.output_dir = output_folder(config.data, command.config_path);
  if (complete) complete(config, command.origins);
  config.model.n_head = config.model.heads();  // a number, for all that read the configuration of a run
  if (is_automatic) config.output_dir = folder_of_run(config, command.origins, command.config_path);
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const std::string& program,
                               const std::string& description, const std::vector<Option>& program_rows,
                               const Completion& complete, const Guide& guide) {
  CommandLine result;
  bool print_config = false, print_reference = false;
  std::vector<Option> own_rows = {
      {.name = "config",
       .target = &result.config_path,
       .help = "YAML file to read, or an installed one (configs/NAME.yaml); flags take precedence over it",
       .aliases = {{"config_path"}},
       .is_path = true}};
  own_rows.insert(own_rows.end(), program_rows.begin(), program_rows.end());
  own_rows.push_back(switch_row("print-config", print_config, "show the effective configuration as YAML"));
  own_rows.push_back(switch_row("print-reference", print_reference, "show the reference of all keys, in Markdown"));
  const auto answer = [&](const std::string& text) {
    print(text);
    result.handled = true;
    return result;
  };
  const auto arguments = parse_arguments({.name = program,
                                          .description = description,
                                          .usage = "[--config FILE] [--KEY VALUE ...]",
                                          .sections = sections(own_rows, options(result.config)),
                                          .notes = kNotes,
                                          .guide = guide,
                                          .flag_for = flag_for_file,
                                          .advice = advice_for_flag,
                                          .says_notes = false},
                                         argc, argv);
  if (!arguments) return answer("");
  const Origins own = apply_settings(arguments->settings, own_rows);
  if (print_reference) return answer(reference_markdown());

  std::vector<Setting> settings, flags = arguments->settings;
  std::erase_if(flags, [&](const Setting& flag) { return own.count(flag.key) > 0; });
  if (own.count("config")) {
    result.config_path = found_or_installed(result.config_path);
    settings = settings_in(result.config_path);
  }
  result.notes = arguments->notes;
  drop_replaced(settings, flags, result.notes);
  settings.insert(settings.end(), flags.begin(), flags.end());
  result.origins = apply_settings(settings, result.config);
  require_fitting_names(result.config.data, result.origins);
  complete_configuration(result, complete);
  validate(result.config, result.config_path.empty() ? program : result.config_path, result.origins);
  if (print_config) return answer(dump(result.config));
  return result;
}

}  // namespace gpt::config
