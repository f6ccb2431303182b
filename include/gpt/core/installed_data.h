// Where scripts/get_data.sh and scripts/install.sh put the default corpus and GPT-2's vocabulary.
#pragma once

#include <filesystem>
#include <string>

namespace gpt {

// The folder that holds this program; where that was reached by a link, the folder that the link leads to.
std::filesystem::path program_folder();

std::filesystem::path checkout_folder();   // around build/bin, if that holds this program
std::filesystem::path installed_folder();  // PREFIX/share/gpt-train beside PREFIX/bin, if that does

// PREFIX/share/gpt-train/NAME beside PREFIX/bin, which holds this program; empty where there is no such file.
std::string installed_file(const std::string& name);

// The path of data/NAME in the working directory, in the checkout around build/bin or in PREFIX/share/gpt-train beside
// PREFIX/bin; empty if none of them has it.
std::string installed_data(const std::string& name);

}  // namespace gpt
