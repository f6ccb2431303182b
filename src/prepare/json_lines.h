// One text field of each line of a .jsonl file.
#pragma once

#include <string>
#include <string_view>

#include "chunk.h"

namespace gpt {

// `lines` are whole lines, the first of them at `first`'s source and position. Empty lines and empty texts are no
// documents. Throws gpt::Error(data), beginning with "NAME: line N": no JSON object, no such field, no string in it.
Chunk parse_json_lines(std::string_view lines, const std::string& field, const DocumentPart& first,
                       const std::string& name);

}  // namespace gpt
