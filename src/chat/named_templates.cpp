#include "gpt/chat/named_templates.h"

namespace gpt::chat {
namespace {

// The system prompt is part of the first question, and whoever speaks out of turn is refused.
constexpr std::string_view kLlama2 = R"({%- set is_told = messages and messages[0].role == 'system' -%}
{%- set turns = messages[1:] if is_told else messages -%}
{%- for turn in turns -%}
{%- if (turn.role == 'user') == (loop.index0 % 2 == 1) -%}
{{- raise_exception('user and assistant take turns, and the user begins') -}}
{%- endif -%}
{%- if turn.role == 'user' -%}
{%- set system = '<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' if is_told and loop.first else '' -%}
{{- bos_token ~ '[INST] ' ~ (system ~ turn.content) | trim ~ ' [/INST]' -}}
{%- elif turn.role == 'assistant' -%}
{{- ' ' ~ turn.content | trim ~ ' ' ~ eos_token -}}
{%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kLlama3 = R"({%- for turn in messages -%}
{{- '<|begin_of_text|>' if loop.first else '' -}}
{{- '<|start_header_id|>' ~ turn.role ~ '<|end_header_id|>\n\n' ~ turn.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt else '' -}}
)";

constexpr std::string_view kZephyr = R"({%- for turn in messages -%}
{%- if turn.role in ['system', 'user', 'assistant'] -%}
{{- '<|' ~ turn.role ~ '|>\n' ~ turn.content ~ eos_token ~ '\n' -}}
{%- endif -%}
{{- '<|assistant|>\n' if loop.last and add_generation_prompt else '' -}}
{%- endfor -%}
)";

// A system prompt takes the place of the sentences that all prompts begin with.
constexpr std::string_view kAlpaca = R"({{- bos_token -}}
{%- if not messages or messages[0].role != 'system' -%}
{{- 'Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n' -}}
{%- endif -%}
{%- for turn in messages -%}
{%- if turn.role == 'user' -%}
{{- '### Instruction:\n' ~ turn.content ~ '\n\n' -}}
{%- elif turn.role == 'assistant' -%}
{{- '### Response:\n' ~ turn.content ~ eos_token ~ ('' if loop.last and not add_generation_prompt else '\n\n') -}}
{%- else -%}
{{- turn.content ~ '\n\n' -}}
{%- endif -%}
{%- endfor -%}
{{- '### Response:\n' if add_generation_prompt else '' -}}
)";

// Words alone, with the end of a text behind each answer. A role has a line of its own: byte pairs would join the first word of an answer
// with a space before it, which is not there yet when the answer begins.
constexpr std::string_view kPlain = R"({%- for turn in messages -%}
{{- turn.role | capitalize ~ ':\n' ~ turn.content | trim ~ (eos_token if turn.role == 'assistant' else '') ~ '\n\n' -}}
{%- endfor -%}
{{- 'Assistant:\n' if add_generation_prompt else '' -}}
)";

}  // namespace

const char* const kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

const std::array<NamedTemplate, kNamedTemplates>& named_templates() {
  static const std::array<NamedTemplate, kNamedTemplates> all = {{{"chatml", kChatMl},
                                                                  {"llama2", kLlama2},
                                                                  {"llama3", kLlama3},
                                                                  {"zephyr", kZephyr},
                                                                  {"alpaca", kAlpaca},
                                                                  {"plain", kPlain}}};
  return all;
}

}  // namespace gpt::chat
