// The examples of a task. The prompts are those of lm-evaluation-harness 0.4.13.
#pragma once

#include <cstdint>
#include <memory>

#include "gpt/evaluate/example.h"
#include "gpt/evaluate/task.h"

namespace gpt::evaluate {

// `stride`: of wikitext, whose pages may be longer than the window. Throws gpt::Error(data) for a file that cannot be read or has no
// example.
std::unique_ptr<ExampleSource> open_task(const Task& task, const Encoding& encoding, int64_t stride);

}  // namespace gpt::evaluate
