// The page at /, on which the model can be tried: one file without any other, src/serve/page.html.
#pragma once

#include <string_view>

namespace gpt::serve {

std::string_view page();

}  // namespace gpt::serve
