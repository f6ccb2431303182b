#include "gpt/serve/page.h"

#include "serve_page.h"

namespace gpt::serve {

std::string_view page() { return kServePage; }

}  // namespace gpt::serve
