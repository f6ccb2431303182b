#include "gpt/config/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include "argument_faults.h"
#include "gpt/config/load.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/version.h"
#include "stray_words.h"

namespace gpt::config {
namespace {

// The arguments as CLI11 understands them: names with '-' (to us '_' is the same), `--name=value` in two (it would take
// the next argument for an empty value). Values stay as they are, and so do `words`, which CLI11 does not see.
std::vector<std::string> respelled(const CLI::App& app, int argc, const char* const* argv,
                                   std::vector<std::string>* words) {
  std::vector<std::string> arguments;
  bool only_words = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (words && (only_words || !argument.starts_with("-") || argument == "-")) {
      words->push_back(argument);
      continue;
    }
    if (words && argument == "--") {
      only_words = true;
      continue;
    }
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    std::string name = argument.substr(0, equals);
    if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = name.starts_with("-") ? app.get_option_no_throw(name) : nullptr;
    const bool takes_value = option && option->get_expected_min() > 0;
    if (equals != std::string::npos && !takes_value) name = argument;
    arguments.push_back(name);
    if (!takes_value) continue;
    if (equals == std::string::npos && i + 1 == argc) refuse_arguments(app, missing_value(*option));
    arguments.push_back(equals == std::string::npos ? argv[++i] : argument.substr(equals + 1));
    if (const auto fault = misread_value(*option, arguments.back())) refuse_arguments(app, *fault);
  }
  return arguments;
}

// The option that takes any number of values, such as the files to read, or nothing.
std::string list_option(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_allow_extra_args()) return option->get_name();
  }
  return "";
}

void refuse_unknown(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return;
  const std::string flag = unknown[0].substr(0, unknown[0].find('='));
  if (!flag.starts_with("-")) {
    refuse_arguments(app, stray_word_fault(argc, argv, unknown[0], [&](const std::string&) { return list_option(app); }));
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  const auto nearest = did_you_mean(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())), names);
  refuse_arguments(app, fmt::format("unknown flag {}{}", in_quotes(flag), nearest ? fmt::format("; did you mean '--{}'?", *nearest) : ""));
}

}  // namespace

void refuse_arguments(const CLI::App& app, const std::string& message) {
  throw Error(ExitCode::config, fmt::format("{}; see {} --help", message, app.get_name()));
}

bool parse_arguments(CLI::App& app, int argc, const char* const* argv, std::vector<std::string>* words) {
  app.option_defaults()->group("Options");
  app.set_help_flag("-h,--help", "show this help and exit");
  app.set_version_flag("--version", version_text(), "show the version and exit");
  app.get_formatter()->column_width(48);
  app.allow_extras();
  std::vector<std::string> arguments = respelled(app, argc, argv, words);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& answered) {
    app.exit(answered, std::cout, std::cerr);
    return false;
  } catch (const CLI::ParseError&) {
    refuse_unknown(app, argc, argv);
    refuse_arguments(app, argument_fault(app));
  }
  refuse_unknown(app, argc, argv);
  return true;
}

}  // namespace gpt::config
