# generated/serve_page.h: the pages that gpt-serve shows at /, which are src/serve/page.html and chat_page.html.
set(_pages ${CMAKE_SOURCE_DIR}/src/serve/page.html ${CMAKE_SOURCE_DIR}/src/serve/chat_page.html)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_pages})
list(GET _pages 0 _page)
list(GET _pages 1 _chat_page)
file(READ ${_page} GPT_SERVE_PAGE)
file(READ ${_chat_page} GPT_SERVE_CHAT_PAGE)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/serve_page.h @ONLY CONTENT [[
// Written by cmake/ServePage.cmake.
#pragma once

#include <string_view>

namespace gpt::serve {

inline constexpr std::string_view kServePage = R"page(@GPT_SERVE_PAGE@)page";
inline constexpr std::string_view kServeChatPage = R"page(@GPT_SERVE_CHAT_PAGE@)page";

}  // namespace gpt::serve
]])
