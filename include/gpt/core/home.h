// The home folder, and "~" where no shell has put it in: in a YAML file, and after the '=' of a flag.
#pragma once

#include <string>

namespace gpt {

std::string home_folder();   // $HOME, or where it is not set that in the list of users; empty: there is none
std::string cache_folder();  // of this program: gpt-train in $XDG_CACHE_HOME or ~/.cache; empty without a home folder

// "~" and "~/x" begin with the home folder, "~name/x" with that user's; any other path is as it was. Throws gpt::Error(config) where
// there is no such folder or user.
std::string expand_home(const std::string& path);

}  // namespace gpt
