#include "gpt/serve/foreign_fields.h"

namespace gpt::serve {
namespace {

constexpr const char* kNever = nullptr;

constexpr ForeignField kForeignFields[] = {
    // Who asks, what it costs, and how a server works: not what is written.
    {"add_generation_prompt", kNever},
    {"cache_prompt", kNever},
    {"cache_salt", kNever},
    {"id_slot", kNever},
    {"keep_alive", kNever},
    {"metadata", kNever},
    {"priority", kNever},
    {"prompt_cache_key", kNever},
    {"request_id", kNever},
    {"return_progress", kNever},
    {"safety_identifier", kNever},
    {"service_tier", kNever},
    {"spaces_between_special_tokens", kNever},
    {"store", kNever},
    {"timings_per_token", kNever},
    {"ttl", kNever},
    // Settings of filters that must be switched on by one of the fields below.
    {"dry_allowed_length", kNever},
    {"dry_base", kNever},
    {"dry_penalty_last_n", kNever},
    {"dry_sequence_breakers", kNever},
    {"dynatemp_exponent", kNever},
    {"mirostat_eta", kNever},
    {"mirostat_tau", kNever},
    {"repeat_last_n", kNever},
    {"xtc_threshold", kNever},
    // What is drawn, when a text ends, and what the answer holds.
    {"allowed_token_ids", "[]"},
    {"bad_words", "[]"},
    {"dry_multiplier", "0"},
    {"dynatemp_range", "0"},
    {"early_stopping", "false"},
    {"grammar", "\"\""},
    {"guided_choice", "[]"},
    {"guided_grammar", "\"\""},
    {"guided_json", "{}"},
    {"guided_regex", "\"\""},
    {"include_stop_str_in_output", "false"},
    {"json_schema", "{}"},
    {"length_penalty", "1"},
    {"logits_processors", "[]"},
    {"max_completion_tokens", "null", "max_tokens"},
    {"max_new_tokens", "null", "max_tokens"},
    {"min_tokens", "0"},
    {"mirostat", "0"},
    {"mirostat_mode", "0"},
    {"n_predict", "null", "max_tokens"},
    {"n_probs", "0", "logprobs"},
    {"no_repeat_ngram_size", "0"},
    {"num_beams", "1"},
    {"prompt_logprobs", "false"},
    {"repeat_penalty", "1", "repetition_penalty"},
    {"response_format", R"({"type": "text"})"},
    {"return_token_ids", "false"},
    {"return_tokens", "false"},
    {"skip_special_tokens", "true"},
    {"smoothing_factor", "0"},
    {"stop_token_ids", "[]"},
    {"structured_outputs", "{}"},
    {"tfs", "1"},
    {"tfs_z", "1"},
    {"top_a", "0"},
    {"typical", "1"},
    {"typical_p", "1"},
    {"use_beam_search", "false"},
    {"xtc_probability", "0"},
};

}  // namespace

std::span<const ForeignField> foreign_fields() { return kForeignFields; }

}  // namespace gpt::serve
