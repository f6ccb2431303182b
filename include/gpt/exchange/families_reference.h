// What comes in and where it leaves to, for people: a table of all families in Markdown, as src/exchange/README.md has it.
#pragma once

#include <string>

namespace gpt::exchange {

std::string families_markdown();

}  // namespace gpt::exchange
