#include "gpt/serve/page.h"

#include "serve_page.h"

namespace gpt::serve {

std::string_view page() { return kServePage; }
std::string_view chat_page() { return kServeChatPage; }

}  // namespace gpt::serve
