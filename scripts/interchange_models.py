"""The small models that try_interchange.py gives to other programs, and those of theirs that it takes."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = 128

GPT2 = {"model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned"}
MODELS = {
    "llama-char": {"data.tokenizer": "char"},
    "llama-byte": {"data.tokenizer": "byte", "model.n_kv_head": 1, "model.tie_weights": "false"},
    "llama-bpe": {"data.tokenizer": "bpe:500", "model.bias": "true", "model.rope_theta": 5000},
    "llama-gpt2": {"data.tokenizer": "gpt2", "model.n_embd": 48, "model.n_hidden": 96, "training.max_steps": 100},
    "llama-smollm": {"data.tokenizer": ROOT / "tests/tokenizer/hugging_face/smollm.json"},
    "llama-qwen2": {"data.tokenizer": ROOT / "tests/tokenizer/hugging_face/qwen2.json"},
    "qwen3-bpe": {"data.tokenizer": "bpe:500", "model.qk_norm": "true", "model.head_dim": 48, "model.n_kv_head": 1},
    "smollm3-bpe": {"data.tokenizer": "bpe:500", "model.rope_pattern": "RRRN", "model.n_layer": 4, "model.rope_scaling": "yarn",
                    "model.rope_scaling_factor": 4, "model.rope_original_length": 32, "model.rope_beta_fast": 4,
                    "model.rope_attention_factor": 1.3},
    "smollm3-byte": {"data.tokenizer": "byte", "model.rope_pattern": "RN", "model.n_layer": 4, "model.attention_window": 24,
                     "model.window_pattern": "SLLS", "model.last_layer_full": "false"},
    "mistral-bpe": {"data.tokenizer": "bpe:500", "model.attention_window": 24, "model.window_pattern": "S",
                    "model.last_layer_full": "false"},
    "ministral-byte": {"data.tokenizer": "byte", "model.attention_window": 24, "model.window_pattern": "SL",
                       "model.rope_scaling": "linear", "model.rope_scaling_factor": 4},
    "llama-llama2": {"data.tokenizer": "pieces of llama2_legacy"},
    "gemma-bpe": {"data.tokenizer": "bpe:500", "model.mlp": "geglu"},  # whose scales move into weights
    "gemma3-gemma": {"data.tokenizer": "pieces of gemma", "model.mlp": "geglu",
                     "model.norm_place": "both", "model.qk_norm": "heads", "model.norm_unit_offset": "true",
                     "model.scaled_embedding": "true", "model.n_layer": 4, "model.attention_window": 24,
                     "model.window_pattern": "SL", "model.rope_theta": 1000000,
                     "model.rope_window_theta": 100},
    "olmo2-bpe": {"data.tokenizer": "bpe:500", "model.norm_place": "output", "model.qk_norm": "all",
                  "model.tie_weights": "false"},
    "olmo3-byte": {"data.tokenizer": "byte", "model.norm_place": "output", "model.qk_norm": "all", "model.tie_weights": "false",
                   "model.n_layer": 4, "model.attention_window": 24, "model.window_pattern": "SL", "model.rope_window_theta": 10000,
                   "model.rope_scaling": "yarn", "model.rope_scaling_factor": 4, "model.rope_original_length": 32},
    "arcee-bpe": {"data.tokenizer": "bpe:500", "model.mlp": "relu2", "model.rope_scaling": "yarn", "model.rope_scaling_factor": 4,
                  "model.rope_original_length": 32, "model.rope_attention_factor": 1.3},
    "arcee-byte": {"data.tokenizer": "byte", "model.mlp": "relu2", "model.n_kv_head": 1, "model.tie_weights": "false",
                   "model.rope_scaling": "llama3", "model.rope_scaling_factor": 4, "model.rope_original_length": 32},
    "gpt2-char": {"data.tokenizer": "char", "model.bias": "true", **GPT2},
    "gpt2-byte": {"data.tokenizer": "byte", "model.tie_weights": "false", **GPT2},
    "gpt2-bpe": {"data.tokenizer": "bpe:500", **GPT2},
    "gpt2-gpt2": {"data.tokenizer": "gpt2", "model.bias": "true", "model.n_embd": 48, "model.n_hidden": 96,
                  "training.max_steps": 100, **GPT2},
}
NOT_IN_CTRANSLATE2 = ("smollm3-bpe", "smollm3-byte", "ministral-byte", "olmo2-bpe", "olmo3-byte", "arcee-bpe", "arcee-byte",
                      "gemma3-gemma")  # of which it knows the published bases alone: findings/gemma3_rope_bases.sh
SIZES = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": BLOCK, "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.1}
# Nor do these in mlx-lm, and Gemma's GELU is the exact one there.
NOT_IN_MLX = ("gpt2-char", "gpt2-byte", "gpt2-bpe", "gpt2-gpt2", "mistral-bpe", "ministral-byte", "gemma-bpe", "arcee-bpe", "arcee-byte")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
# Small models of transformers with random weights: families with what differs among them, beside the sizes.
FOREIGN = {
    "llama": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "qwen2": {"rope_parameters": {**YARN, "rope_theta": 10000.0, "attention_factor": 1.3, "beta_fast": 4}},
    "qwen3": {"head_dim": 48},
    "mistral": {"sliding_window": 24},
    "ministral": {"head_dim": 16, "sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "smollm3": {"no_rope_layers": [1, 0, 1, 1], "pad_token_id": None},
    "gemma": {"head_dim": 48, "pad_token_id": None},
    "gemma3_text": {"head_dim": 48, "query_pre_attn_scalar": 48, "sliding_window": 24, "pad_token_id": None,
                    "layer_types": ["sliding_attention", "full_attention"] * 2},
    "olmo2": {"pad_token_id": None},
    "olmo3": {"sliding_window": 24, "pad_token_id": None,
              "rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}}},
    "arcee": {"attention_bias": True, "mlp_bias": True, "rope_parameters": {**YARN, "rope_theta": 10000.0}},
}
# The same of models that see images, too: what reads text in them, its settings, those of what sees, and where an image stands.
SEEING = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
QWEN_SEEING = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
QWEN_PLACES = {"image_token_id": 255, "video_token_id": 254, "vision_start_token_id": 253, "vision_end_token_id": 252}
WITH_IMAGES = {
    "gemma3": ("gemma3_text", {**FOREIGN["gemma3_text"]}, {**SEEING, "model_type": "siglip_vision_model"},
               {"mm_tokens_per_image": 4, "image_token_index": 255, "boi_token_index": 254, "eoi_token_index": 253}),
    "mistral3": ("mistral", {"sliding_window": None, "head_dim": 16}, {**SEEING, "model_type": "pixtral"}, {"image_token_index": 255}),
    "qwen2_vl": ("qwen2_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
                 {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2}, QWEN_PLACES),
    "qwen2_5_vl": ("qwen2_5_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, QWEN_SEEING, QWEN_PLACES),
    "qwen3_vl": ("qwen3_vl_text", {"head_dim": 16, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]}},
                 {**QWEN_SEEING, "depth": 2, "deepstack_visual_indexes": [0]}, QWEN_PLACES),
    "smolvlm": ("llama", {"pad_token_id": None}, SEEING, {"image_token_id": 255, "scale_factor": 2}),
    "idefics3": ("llama", {"pad_token_id": None}, SEEING, {"image_token_id": 255, "scale_factor": 2}),
    "llava": ("llama", {}, {**SEEING, "model_type": "clip_vision_model"}, {"image_token_index": 255}),
    "internvl": ("qwen2", {}, {**SEEING, "image_size": [28, 28], "patch_size": [14, 14]}, {"image_token_id": 255}),
}
ADAPTED = ("llama-byte", "gpt2-bpe", "gemma-bpe")  # whose adapters are tried
