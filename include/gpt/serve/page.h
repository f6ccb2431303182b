// The page at /, on which the model can be tried: one file without any other, src/serve/page.html or chat_page.html.
#pragma once

#include <string_view>

namespace gpt::serve {

std::string_view page();       // continues a text
std::string_view chat_page();  // keeps a dialogue

}  // namespace gpt::serve
