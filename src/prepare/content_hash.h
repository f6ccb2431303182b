// What names the contents of an input, whatever its files are called.
#pragma once

#include <string>
#include <vector>

#include "source_list.h"

namespace gpt::prepare {

// The hash of all `sources`, those of `input` (a file, folder or glob). It is kept in the file `index`, and not computed again
// while path, size, times, inode and device of every file are the same; an index that is damaged or cannot be written is no
// fault. Throws gpt::Error: data for what cannot be read, or only once; interrupted.
std::string content_hash(const std::string& input, const std::vector<Source>& sources, const std::string& index);

}  // namespace gpt::prepare
