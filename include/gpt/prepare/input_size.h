// How much text a configuration names, found out without reading it.
#pragma once

#include <cstdint>

#include "gpt/config/data_config.h"

namespace gpt {

// About the number of characters: bytes on the disk, packed files counted four times (text packs to a quarter), a bin of
// token ids by four characters a token, and no more than max_chars. 0 = the configuration names no data.
// Throws gpt::Error(data) when the files are not there.
int64_t estimate_characters(const DataConfig& config);

}  // namespace gpt
