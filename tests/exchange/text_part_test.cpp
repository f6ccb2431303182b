// Models that see images, too. The members of the files are those of models that are published, but for their sizes.
#include "exchange/text_part.h"

#include <gtest/gtest.h>

#include <string>

#include "core/scratch_folder.h"
#include "gpt/exchange/import.h"
#include "support/expect_error.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;

// gemma-3-4b-it's, which leaves out what is as in all of the family.
const json kGemma3WithImages = json::parse(
    R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
        "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
        "model_type": "gemma3",
        "text_config": {"hidden_size": 256, "intermediate_size": 1024, "model_type": "gemma3_text",
                        "num_hidden_layers": 7, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                        "sliding_window": 1024},
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1152, "image_size": 896, "model_type": "siglip_vision_model"}})");

// As Mistral Small 3.1 has it.
const json kMistral3 = json::parse(
    R"({"architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10, "model_type": "mistral3",
        "multimodal_projector_bias": false, "spatial_merge_size": 2,
        "text_config": {"attention_dropout": 0.0, "head_dim": 8, "hidden_act": "silu", "hidden_size": 16,
                        "intermediate_size": 24, "max_position_embeddings": 64, "model_type": "mistral",
                        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
                        "rms_norm_eps": 1e-5, "rope_theta": 1000000000.0, "sliding_window": null, "vocab_size": 10},
        "vision_config": {"model_type": "pixtral"}, "vision_feature_layer": -1})");

// As Qwen2.5-VL-3B has it, whose text model has no object of its own.
const json kQwen25 = json::parse(
    R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "hidden_act": "silu", "hidden_size": 16,
        "image_token_id": 5, "intermediate_size": 24, "max_position_embeddings": 64, "max_window_layers": 70,
        "model_type": "qwen2_5_vl", "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6, "rope_scaling": {"mrope_section": [1, 1, 0], "type": "mrope"}, "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false, "vision_config": {},
        "vocab_size": 10})");

ForeignForm read_whole(const json& file) { return read_config_json(file.dump(), "a/config.json"); }

TEST(TextPart, OfGemma3IsGemma3WithTheSizesThatItsFileLeavesOut) {
  const ForeignForm form = read_whole(kGemma3WithImages);
  EXPECT_EQ(form.family, &kGemma3Family);
  EXPECT_EQ(form.text_part_of, "gemma3");
  const ModelConfig& model = form.model;
  EXPECT_EQ(model.heads(), 8) << "as in transformers";
  EXPECT_EQ(model.kv_heads(), 4);
  EXPECT_EQ(model.head_dim(), 256);
  EXPECT_EQ(model.vocab_size, 262'208);
  EXPECT_EQ(model.block_size, 131'072);
  EXPECT_TRUE(model.tie_weights);
  EXPECT_EQ(model.window(4), 1024);
  EXPECT_EQ(model.window(5), 0) << "every sixth layer";
  EXPECT_TRUE(model.rope_scaling.kind == RopeScalingKind::linear && model.rope_scaling.factor == 8);
  EXPECT_EQ(model.rope_window_theta, 1e4) << "which is not scaled";
  const json written = json::parse(config_json(model, kGemma3Family, "float32", {}).dump());
  EXPECT_EQ(written["model_type"], "gemma3_text");
  EXPECT_EQ(read_whole(written).text_part_of, "");
}

TEST(TextPart, OfOthersIsTheFamilyThatTheyName) {
  const ForeignForm mistral = read_whole(kMistral3), qwen = read_whole(kQwen25);
  EXPECT_EQ(mistral.family, &kMistralFamily);
  EXPECT_FALSE(mistral.model.tie_weights);
  EXPECT_EQ(mistral.model.head_dim(), 8);
  EXPECT_EQ(qwen.family, &kQwen2Family);
  EXPECT_TRUE(qwen.model.tie_weights);
  EXPECT_TRUE(qwen.model.rope_scaling == RopeScaling()) << "text is rotated as by default";
  json file = kMistral3;
  file["tie_word_embeddings"] = true;  // as version 5 of transformers writes it, whatever text_config says
  EXPECT_TRUE(read_whole(file).model.tie_weights);
  file["model_type"] = "smollm_with_eyes";
  EXPECT_ERROR(read_whole(file), ExitCode::checkpoint,
               "a/config.json: model_type is \"smollm_with_eyes\"; this program has only llama, ");
  file = kMistral3, file["text_config"]["model_type"] = "ministral3";
  EXPECT_ERROR(read_whole(file), ExitCode::checkpoint, "a/config.json: text_config.model_type is \"ministral3\"");
  file = kMistral3, file["text_config"]["hidden_act"] = "gelu";
  EXPECT_ERROR(read_whole(file), ExitCode::checkpoint, "a/config.json: text_config.hidden_act is \"gelu\"");
  file = kMistral3, file["text_config"].erase("vocab_size");
  EXPECT_ERROR(read_whole(file), ExitCode::checkpoint, "a/config.json: text_config.vocab_size is missing");
  file = kMistral3, file["quantization_config"] = {{"bits", 4}};
  EXPECT_ERROR(read_whole(file), ExitCode::checkpoint, "a/config.json: quantization_config is {");
}

TEST(TextPart, IsWhatALineSaysIsRead) {
  const ScratchFolder root;
  root.file("model/config.json", kGemma3WithImages.dump());
  EXPECT_EQ(read_foreign_model(root / "model").notes,
            std::vector<std::string>{
                (root / "model") + " is a gemma3 model, which also sees images: only its text model is read (Gemma 3), "
                                   "and an export is that text model"});
}

TEST(TextPart, HasItsTensorsInOneOfThreePlaces) {
  EXPECT_EQ(name_in_text_model("language_model.model.layers.0.mlp.up_proj.weight"),
            "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(name_in_text_model("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(name_in_text_model("model.language_model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(name_in_text_model("model.text_model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(name_in_text_model("model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(name_in_text_model("lm_head.weight"), "lm_head.weight");
  for (const char* of_images : {"vision_tower.embeddings.patch_embedding.bias", "model.vision_model.a", "visual.b",
                                "model.visual.b", "multi_modal_projector.c", "model.connector.d"})
    EXPECT_EQ(name_in_text_model(of_images), "") << of_images;
}

}  // namespace
}  // namespace gpt::exchange
