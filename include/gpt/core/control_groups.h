// Linux's control groups, which limit what the processes in them may use.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

// The folders in which Linux says what limits this process: those of its own group and of the groups around it, of both versions.
// `controller` is "cpu" or "memory"; `root` stands for / in a test. A folder need not exist: a container sees only some of them.
std::vector<std::filesystem::path> control_groups(std::string_view controller, const std::string& root = "");

}  // namespace gpt
