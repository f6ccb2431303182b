// config.json, written and read. Transformers ignores what it does not know, so a file may say anything; whatever would change what the
// model computes is either implemented or refused by name.
#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "gpt/config/load.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/text_format_files.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json gpt2_json(const ModelConfig& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"n_embd", m.n_embd},
          {"n_layer", m.n_layer},
          {"n_head", m.heads()},
          {"n_inner", m.hidden()},
          {"n_positions", m.block_size},
          {"n_ctx", m.block_size},  // for readers of older files
          {"layer_norm_epsilon", m.norm_eps},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"reorder_and_upcast_attn", false},
          {"attn_pdrop", m.dropout},
          {"embd_pdrop", m.dropout},
          {"resid_pdrop", m.dropout}};
}

ordered_json llama_json(const ModelConfig& m) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"hidden_size", m.n_embd},
          {"intermediate_size", m.hidden()},
          {"num_hidden_layers", m.n_layer},
          {"num_attention_heads", m.heads()},
          {"num_key_value_heads", m.kv_heads()},
          {"head_dim", m.head_dim()},
          {"max_position_embeddings", m.block_size},
          {"rms_norm_eps", m.norm_eps},
          {"rope_theta", m.rope_theta},  // transformers 4; the next is version 5
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", m.rope_theta}}},
          {"attention_bias", m.bias},
          {"mlp_bias", m.bias},
          {"attention_dropout", 0.0},
          {"pretraining_tp", 1}};
}

// The object, or one inside it, with the errors that name a member.
class Settings {
 public:
  Settings(const json& object, std::string prefix, const std::string& origin)
      : object_(object), prefix_(std::move(prefix)), origin_(origin) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  bool is_empty() const { return object_.empty(); }

  int64_t count(const char* key) const {
    constexpr int64_t kMost = 1'000'000'000;
    if (has(key) && object_[key].is_number_integer() && object_[key] >= 1 && object_[key] <= kMost)
      return object_[key].get<int64_t>();
    refuse(key, "a whole number from 1 on is needed");
  }
  int64_t count(const char* key, int64_t otherwise) const { return has(key) ? count(key) : otherwise; }

  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (object_[key].is_number() && std::isfinite(object_[key].get<double>())) return object_[key].get<double>();
    refuse(key, "a number is needed");
  }

  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (object_[key].is_boolean()) return object_[key].get<bool>();
    refuse(key, "true or false is needed");
  }

  // Where the key is missing, the file means the first of them.
  void must_be(const char* key, std::initializer_list<json> values) const {
    if (!has(key) || std::find(values.begin(), values.end(), object_[key]) != values.end()) return;
    refuse(key, fmt::format("this program has only {}", shown(*values.begin())));
  }
  void must_be_absent(const char* key) const {
    if (has(key)) refuse(key, "this program has only models without it");
  }

  Settings inside(const char* key) const {
    if (!object_[key].is_object()) refuse(key, "an object is needed");
    return {object_[key], prefix_ + key + ".", origin_};
  }

  // "WHERE: KEY is VALUE; WHY".
  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    const std::string value = object_.contains(key) ? shown(object_[key]) : "missing";
    throw Error(ExitCode::checkpoint, fmt::format("{}: {}{} is {}; {}", origin_, prefix_, key, value, why));
  }

 private:
  static std::string shown(const json& value) {
    constexpr size_t kLongest = 100;
    return shortened(printable_line(value.dump(-1, ' ', false, json::error_handler_t::replace)), kLongest);
  }

  const json& object_;
  const std::string prefix_;
  const std::string& origin_;
};

ModelConfig gpt2_model(const Settings& s) {
  s.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  s.must_be("scale_attn_weights", {true});
  s.must_be("scale_attn_by_inverse_layer_idx", {false});
  s.must_be("add_cross_attention", {false});
  ModelConfig m;
  m.norm = Norm::layernorm;
  m.mlp = Mlp::gelu;
  m.position = Position::learned;
  m.bias = true;
  m.n_embd = s.count("n_embd");
  m.n_layer = s.count("n_layer");
  m.n_head = s.count("n_head");
  m.n_hidden = s.count("n_inner", 4 * m.n_embd);
  m.block_size = s.count("n_positions", s.has("n_ctx") ? s.count("n_ctx") : 1024);
  m.norm_eps = s.number("layer_norm_epsilon", 1e-5);
  m.tie_weights = s.flag("tie_word_embeddings", true);
  return m;
}

// Version 5 of transformers keeps it within rope_parameters, version 4 beside an optional rope_scaling. Where a file has both, rope_scaling
// takes the place of all of rope_parameters, as in version 5.
double rope_theta(const Settings& s) {
  const double outside = s.number("rope_theta", 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!s.has(key)) continue;
    const Settings rope = s.inside(key);
    if (rope.is_empty()) continue;
    for (const char* type : {"rope_type", "type"}) rope.must_be(type, {"default"});
    rope.must_be("partial_rotary_factor", {1.0});
    return rope.number("rope_theta", outside);
  }
  return outside;
}

ModelConfig llama_model(const Settings& s) {
  s.must_be("hidden_act", {"silu", "swish"});
  s.must_be("partial_rotary_factor", {1.0});
  ModelConfig m;
  m.norm = Norm::rmsnorm;
  m.mlp = Mlp::swiglu;
  m.position = Position::rope;
  m.bias = s.flag("attention_bias", false);
  if (s.flag("mlp_bias", false) != m.bias)
    s.refuse("attention_bias", "mlp_bias differs, and model.bias stands for both");
  m.n_embd = s.count("hidden_size");
  m.n_layer = s.count("num_hidden_layers");
  m.n_head = s.count("num_attention_heads");
  m.n_kv_head = s.count("num_key_value_heads", *m.n_head);
  m.n_hidden = s.count("intermediate_size");
  m.block_size = s.count("max_position_embeddings", 2048);
  m.norm_eps = s.number("rms_norm_eps", 1e-6);
  m.rope_theta = rope_theta(s);
  m.tie_weights = s.flag("tie_word_embeddings", false);
  if (s.has("head_dim") && s.count("head_dim") * *m.n_head != m.n_embd) m.n_head_dim = s.count("head_dim");
  return m;
}

// The ranges of our keys, and what they must have in common.
void require_valid(const ModelConfig& model, const std::string& origin) {
  Config config;
  config.model = model;
  try {
    config::check_values(config::options(config.model));
    config::validate(config, origin);
  } catch (const Error& error) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", origin, error.what()));
  }
}

json parse_config(std::string_view text, const std::string& origin) {
  constexpr int kDeepest = 16;
  const auto refuse = [&](const char* why) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", origin, why));
  };
  json object;
  try {
    object = json::parse(text, [&](int depth, json::parse_event_t, json&) {
      if (depth > kDeepest) refuse("it is nested too deep");
      return true;
    });
  } catch (const json::exception&) { refuse("it is not JSON"); }
  if (!object.is_object()) refuse("it is no JSON object");
  return object;
}

}  // namespace

ordered_json config_json(const ModelConfig& model, Family family, std::string_view dtype, const TextFormat& format) {
  ordered_json file = family == Family::gpt2 ? gpt2_json(model) : llama_json(model);
  file["vocab_size"] = *model.vocab_size;
  file["tie_word_embeddings"] = model.tie_weights;
  file["initializer_range"] = 0.02;
  file["bos_token_id"] = file["eos_token_id"] = nullptr;
  file.update(numbered_tokens(format));
  file["dtype"] = dtype;
  file["torch_dtype"] = dtype;  // its name in transformers 4
  file["use_cache"] = true;
  return file;
}

ForeignForm read_config_json(std::string_view text, const std::string& origin) {
  const json object = parse_config(text, origin);
  const Settings settings(object, "", origin);
  const json type = object.value("model_type", json());
  if (type != "gpt2" && type != "llama") settings.refuse("model_type", "this program has only gpt2 and llama");
  settings.must_be_absent("quantization_config");
  for (const char* key : {"qk_norm", "use_qk_norm", "use_sliding_window"}) settings.must_be(key, {false});
  ForeignForm form{type == "gpt2" ? Family::gpt2 : Family::llama, {}};
  form.model = form.family == Family::gpt2 ? gpt2_model(settings) : llama_model(settings);
  form.model.vocab_size = settings.count("vocab_size");
  require_valid(form.model, origin);
  return form;
}

}  // namespace gpt::exchange
