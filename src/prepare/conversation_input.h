// Whether an input is conversations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpt/chat/conversation_lines.h"
#include "source_list.h"

namespace gpt::prepare {

// Their shape. The first line of the first file of JSON lines decides, or of the first file, where none is called so. Nothing for texts, and
// for what comes through a pipe, of which nothing can be read in advance.
std::optional<chat::ConversationShape> conversations_in(const std::vector<Source>& sources,
                                                        const std::string& text_field);

}  // namespace gpt::prepare
