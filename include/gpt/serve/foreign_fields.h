// Fields that the completions of other servers have (vLLM, llama.cpp, Ollama and others) and these have not. Their clients send them as a
// matter of course.
#pragma once

#include <span>

namespace gpt::serve {

struct ForeignField {
  const char* name;
  const char* nothing;            // the value, as JSON, with which it changes nothing; nullptr: it never does
  const char* instead = nullptr;  // the field here that says the same
};

std::span<const ForeignField> foreign_fields();

}  // namespace gpt::serve
