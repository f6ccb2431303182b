#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "foreign.h"
#include "gpt/config/arguments.h"
#include "gpt/config/load.h"
#include "gpt/config/setting.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/printable.h"
#include "limits.h"

namespace gpt::config {
namespace {

constexpr const char* kUsage =
    "[--config FILE] [--KEY VALUE ...]\n\n"
    "A key of the configuration may have its section before it: --section.KEY VALUE. In YAML, each key "
    "stands below its section, indented.";

// Keys of which only one may be set: a flag for one replaces what the file chose, together with what describes it.
void drop_replaced(std::vector<Setting>& from_file, const std::vector<Setting>& from_flags) {
  using Keys = std::vector<std::string>;
  static const std::pair<Keys, Keys> kRivals[] = {
      {{"data.text", "data.dataset", "data.bin"},
       {"data.text", "data.dataset", "data.bin", "data.validation_bin", "data.metadata"}},
      {{"training.epochs", "training.max_steps"}, {"training.epochs", "training.max_steps"}},
      {{"training.gradient_accumulation_steps", "training.total_batch_size"},
       {"training.gradient_accumulation_steps", "training.total_batch_size"}},
  };
  const auto is_one_of = [](const Keys& keys) {
    return [&keys](const Setting& setting) { return std::find(keys.begin(), keys.end(), setting.key) != keys.end(); };
  };
  const auto says_something = [](const Setting& setting) { return setting.text != "auto"; };
  for (const auto& [chosen, replaced] : kRivals) {
    if (std::any_of(from_flags.begin(), from_flags.end(),
                    [&](const Setting& setting) { return is_one_of(chosen)(setting) && says_something(setting); })) {
      from_file.erase(std::remove_if(from_file.begin(), from_file.end(), is_one_of(replaced)), from_file.end());
    }
  }
  // A run's own effective_config.yaml has both a total and the micro-steps that followed from it: they follow anew from another
  // batch_size.
  const bool has_total = std::any_of(from_file.begin(), from_file.end(), [](const Setting& setting) {
    return setting.key == "training.total_batch_size" && setting.text != "auto";
  });
  if (has_total && std::any_of(from_flags.begin(), from_flags.end(), is_one_of({"training.batch_size"})))
    std::erase_if(from_file, is_one_of({"training.gradient_accumulation_steps"}));
}

// The last part of a path up to its first '.', fit for the name of a folder; empty where nothing is left.
std::string name_of(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::string name = path.substr(path.rfind('/') + 1);
  name = name.substr(0, name.find('.', 1));
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c >= 0x80; };
  for (char& c : name) {
    if (!is_plain(static_cast<unsigned char>(c))) c = '_';
  }
  return name.find_first_not_of('_') == std::string::npos ? "" : name;
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
    key.is_shadowed = is_taken(key.name);
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

}  // namespace

std::string output_folder(const DataConfig& data, const std::string& config_path) {
  std::string name = name_of(config_path);
  if (name.empty()) name = name_of(data.text);
  if (name.empty()) name = name_of(data.bin);
  if (name.empty() && data.dataset == DatasetName::shakespeare) name = "shakespeare";
  return fmt::format("{}/{}", kRunsFolder, name.empty() ? "run" : name);
}

CommandLine parse_command_line(int argc, const char* const* argv, const std::string& program,
                               const std::string& description, const std::vector<Option>& program_rows,
                               const Completion& complete) {
  CommandLine result;
  bool print_config = false, print_reference = false;
  std::vector<Option> own_rows = {{.name = "config",
                                   .target = &result.config_path,
                                   .help = "YAML file to read; flags take precedence over it",
                                   .aliases = {{"config_path"}}}};
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
                                          .usage = kUsage,
                                          .sections = sections(own_rows, options(result.config)),
                                          .flag_for = flag_for_file,
                                          .advice = advice_for_flag},
                                         argc, argv);
  if (!arguments) return answer("");
  const Origins own = apply_settings(arguments->settings, own_rows);
  if (print_reference) return answer(reference_markdown());

  std::vector<Setting> settings, flags = arguments->settings;
  std::erase_if(flags, [&](const Setting& flag) { return own.count(flag.key) > 0; });
  if (own.count("config")) {
    settings = yaml_settings(read_file(result.config_path, ExitCode::config, SizeLimit{"a configuration", kMostBytes}),
                             result.config_path);
  }
  drop_replaced(settings, flags);
  settings.insert(settings.end(), flags.begin(), flags.end());
  result.origins = apply_settings(settings, result.config);
  if (complete) complete(result.config, result.origins);
  if (result.config.output_dir == kAutomaticFolder)
    result.config.output_dir = output_folder(result.config.data, result.config_path);
  validate(result.config, result.config_path.empty() ? program : result.config_path, result.origins);
  if (print_config) return answer(dump(result.config));
  return result;
}

}  // namespace gpt::config
