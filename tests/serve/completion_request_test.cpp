#include "gpt/serve/completion_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "gpt/serve/api_error.h"

namespace gpt::serve {
namespace {

using nlohmann::json;

CompletionRequest parse(const std::string& body, bool strict_fields = false) {
  return parse_completion_request(body, {.models = {"mine", "its adapter"},
                                         .most_tokens = 1000,
                                         .strict_fields = strict_fields});
}

// "STATUS PARAM: MESSAGE" of what the fields beside a prompt are refused with; empty where they are not.
std::string refused(const std::string& fields, bool strict_fields = false) {
  try {
    parse(R"({"prompt": "a", )" + fields + "}", strict_fields);
  } catch (const ApiError& error) {
    const json body = json::parse(error.json())["error"];
    return std::to_string(error.status()) + " " + body["param"].dump() + ": " + body["message"].get<std::string>();
  }
  return "";
}

TEST(CompletionRequest, HasOpenAIsDefaults) {
  for (const char* body :
       {R"({"prompt": "a"})",
        R"({"prompt": "a", "model": "mine", "max_tokens": null, "best_of": 1, "suffix": null, "user": "me",
                               "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "stop": null, "stream": false})"}) {
    const CompletionRequest request = parse(body);
    ASSERT_EQ(request.prompts.size(), 1);
    EXPECT_EQ(std::get<std::string>(request.prompts[0]), "a");
    EXPECT_EQ(request.sampling.max_new_tokens, 16);
    EXPECT_EQ(request.sampling.temperature, 1);
    EXPECT_EQ(request.sampling.top_p, 1);
    EXPECT_EQ(request.n, 1);
    EXPECT_FALSE(request.logprobs || request.echo || request.stream || request.include_usage);
    EXPECT_NE(request.sampling.seed, parse(body).sampling.seed);  // another each time
  }
}

TEST(CompletionRequest, ReadsEveryField) {
  const CompletionRequest request = parse(R"({
    "prompt": "é", "max_tokens": 0, "temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "repetition_penalty": 2, "seed": 7,
    "stop": ["x", "yz"], "n": 3, "logprobs": 0, "echo": true, "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_EQ(request.sampling.max_new_tokens, 0);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.5);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 2);
  EXPECT_EQ(request.sampling.seed, 7);
  EXPECT_EQ(request.sampling.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.logprobs, 0);
  EXPECT_TRUE(request.echo && request.stream && request.include_usage);
  EXPECT_EQ(parse(R"({"prompt": "a", "stop": "end"})").sampling.stop, std::vector<std::string>{"end"});
}

TEST(CompletionRequest, TakesTheFourFormsOfAPrompt) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(std::get<Ids>(parse(R"({"prompt": [1, 2]})").prompts[0]), (Ids{1, 2}));
  const auto texts = parse(R"({"prompt": ["a", ""]})").prompts;
  EXPECT_EQ(std::get<std::string>(texts[1]), "");
  const auto mixed = parse(R"({"prompt": [[5], "b", [6, 7]]})").prompts;
  ASSERT_EQ(mixed.size(), 3);
  EXPECT_EQ(std::get<Ids>(mixed[2]), (Ids{6, 7}));
  for (const char* wrong : {"[]", "[[]]", "[1, \"a\"]", "[1.5]", "[-1]", "[99999999999]", "[18446744073709551615]",
                            "{}", "true", "[[1], 2]", "[null]", "[[[1]]]"}) {
    EXPECT_THROW(parse("{\"prompt\": " + std::string(wrong) + "}"), ApiError) << wrong;
  }
}

TEST(CompletionRequest, NamesTheFieldAtFault) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("max_tokens": 1001)", R"(400 "max_tokens": max_tokens must be a whole number from -1 to 1000, got 1001)"},
      {R"("max_tokens": -2)", R"(400 "max_tokens")"},
      {R"("max_tokens": 1e300)", R"(400 "max_tokens")"},
      {R"("max_tokens": 1.5)", R"(400 "max_tokens")"},
      {R"("max_tokens": 18446744073709551615)", R"(400 "max_tokens")"},
      {R"("max_tokens": "5")", R"(400 "max_tokens")"},
      {R"("temperature": -0.1)", R"(400 "temperature")"},
      {R"("temperature": true)", R"(400 "temperature")"},
      {R"("top_p": -1)", R"(400 "top_p")"},
      {R"("top_k": -2)", R"(400 "top_k")"},
      {R"("seed": 0.5)", R"(400 "seed")"},
      {R"("truncate_prompt_tokens": 0)", R"(400 "truncate_prompt_tokens")"},
      {R"("n": 129)", R"(400 "n")"},
      {R"("n": 0)", R"(400 "n")"},
      {R"("logprobs": 21)", R"(400 "logprobs")"},
      {R"("logprobs": true)", R"(400 "logprobs")"},
      {R"("echo": 1)", R"(400 "echo": echo must be true or false, got 1)"},
      {R"("stop": ["a", "b", "c", "d", "e"])", R"(400 "stop": stop: there may be 4 texts, got 5)"},
      {R"("stop": [null])", R"(400 "stop")"},
      {R"("stop": [1])", R"(400 "stop")"},
      {R"("stream_options": {"include_usage": true})", R"(400 "stream_options")"},
      {R"("stream_options": 1)", R"(400 "stream_options")"},
      {R"("suffix": "end")", R"(400 "suffix": suffix is not supported: leave it out, or send ""; got "end")"},
      {R"("best_of": 3)", R"(400 "best_of")"},
      {R"("presence_penalty": 0.5)", R"(400 "presence_penalty")"},
      {R"("logit_bias": {"5": 1})", R"(400 "logit_bias")"},
      {R"("min_tokens": 5)", R"(400 "min_tokens": min_tokens is not supported: leave it out, or send 0; got 5)"},
      {R"("n_predict": 5)", R"(400 "n_predict": n_predict is not supported: send max_tokens instead; got 5)"},
      {R"("model": "other")", R"(404 "model": there is no model "other" here, only "mine")"},
      {R"("model": 5)", R"(404 "model")"},
  };
  for (const auto& [fields, expected] : cases)
    EXPECT_TRUE(refused(fields).starts_with(expected)) << fields << ": " << refused(fields);
}

// As OpenAI, vLLM and llama.cpp take them.
TEST(CompletionRequest, TakesTheValuesThatMeanOff) {
  for (const char* fields : {R"("top_k": -1)",
                             R"("top_k": 0)",
                             R"("min_p": 0)",
                             R"("repetition_penalty": 1)",
                             R"("stop": "")",
                             R"("stop": [])",
                             R"("stop": ["", ""])",
                             R"("logprobs": false)",
                             R"("best_of": 1)",
                             R"("n": 1.0)",
                             R"("presence_penalty": 0.0)",
                             R"("logit_bias": {"5": 0})",
                             R"("suffix": "")",
                             R"("stream_options": {})",
                             R"("stream_options": {"include_usage": null})",
                             R"("ignore_eos": false)",
                             R"("min_tokens": 0)",
                             R"("response_format": {"type": "text"})",
                             R"("repeat_penalty": 1.0)",
                             R"("langs": null)"}) {
    EXPECT_EQ(refused(fields, fields == std::string(R"("langs": null)")), "");
    const CompletionRequest request = parse(R"({"prompt": "a", )" + std::string(fields) + "}");
    EXPECT_EQ(request.sampling.top_k, 0);
    EXPECT_EQ(request.sampling.stop, std::vector<std::string>());
    EXPECT_FALSE(request.logprobs || request.ignores_end || request.include_usage || request.continuous_usage);
  }
  const auto sampling = [](const char* fields) {
    return parse(R"({"prompt": "a", )" + std::string(fields) + "}").sampling;
  };
  EXPECT_NE(sampling(R"("seed": -1)").seed, sampling(R"("seed": -1)").seed);
  EXPECT_EQ(sampling(R"("seed": -2)").seed, sampling(R"("seed": -2.0)").seed);
  EXPECT_EQ(sampling(R"("seed": 7.0, "max_tokens": 8.0)").seed, 7);
  EXPECT_EQ(sampling(R"("max_tokens": -1)").max_new_tokens, 1000);
  EXPECT_LT(sampling(R"("top_p": 0)").top_p, 1e-6);
  EXPECT_GT(sampling(R"("top_p": 0)").top_p, 0);
  EXPECT_EQ(sampling(R"("stop": ["", "x"])").stop, std::vector<std::string>{"x"});
}

TEST(CompletionRequest, HasFieldsOfOtherServers) {
  const CompletionRequest request =
      parse(R"({"prompt": "a", "ignore_eos": true, "truncate_prompt_tokens": -1, "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}})",
            /*strict_fields=*/true);
  EXPECT_TRUE(request.ignores_end && request.include_usage && request.continuous_usage);
  EXPECT_EQ(request.prompt_tokens, -1);
  EXPECT_TRUE(request.left_out.empty());
}

TEST(CompletionRequest, SaysWhatItLeavesOut) {
  const CompletionRequest request =
      parse(R"({"prompt": "a", "cache_prompt": true, "min_tokens": 0, "none": null, "temprature": 1, "user": "me",
          "stream": true, "stream_options": {"x": 1}})");
  std::string left_out;
  for (const auto& [field, is_known] : request.left_out) left_out += field + (is_known ? " " : "? ");
  EXPECT_EQ(left_out, "stream_options.x? cache_prompt min_tokens temprature? ");
  EXPECT_EQ(refused(R"("cache_prompt": 1)", true), "");
  EXPECT_EQ(refused(R"("temprature": 1)", true), R"(400 "temprature": 'temprature' is no field of a completion)");
  EXPECT_TRUE(refused(R"("stream": true, "stream_options": {"x": 1})", true).starts_with(R"(400 "stream_options.x")"));
}

// Not a library's.
TEST(CompletionRequest, SaysInItsOwnWordsWhereABodyIsNoJson) {
  const auto message = [](const std::string& body) {
    try {
      parse(body);
    } catch (const ApiError& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_EQ(message(""), "the body is empty: it must be a JSON object");
  EXPECT_EQ(message(R"({"prompt": "a")"), "the body is not JSON: it ends too early");
  EXPECT_EQ(message(R"({"prompt": 'a'})"), R"(the body is not JSON: byte 12 is wrong there, behind: {"prompt": )");
  EXPECT_EQ(message("x"), "the body is not JSON: byte 1 is wrong there");
  EXPECT_EQ(message(R"({"n": 1e999})"), "the body is not JSON: it has a number that is too large");
  for (const char* body : {"{\"prompt\": \"\xff\"}", R"({"prompt": "\ud800"})", "[1", "nul", "{\"a\" 1}", "{}{}"})
    EXPECT_TRUE(message(body).starts_with("the body is not JSON: ") &&
                message(body).find("exception") == std::string::npos)
        << message(body);
}

TEST(CompletionRequest, CountsTextsOverAllPrompts) {
  EXPECT_EQ(parse(R"({"prompt": ["a", "b"], "n": 64})").prompts.size(), 2);
  EXPECT_THROW(parse(R"({"prompt": ["a", "b"], "n": 65})"), ApiError);
}

TEST(CompletionRequest, SurvivesAnyBytes) {
  const std::string deep = std::string(100'000, '['), closed = deep + std::string(100'000, ']');
  for (const std::string& body :
       {std::string(), std::string("nul\0l", 5), std::string("{"), std::string("[]"), std::string("5"), deep,
        "{\"prompt\": " + closed + "}", std::string("{\"prompt\": \"\xff\"}"), std::string("{\"prompt\": \"\\ud800\"}"),
        std::string("{\"prompt\": \"a\", \"n\": 1e999}"), std::string("{\"prompt\": \"a\", \"\x1b[2J\": 1}")}) {
    EXPECT_THROW(parse(body), ApiError) << body.substr(0, 100);
  }
}

}  // namespace
}  // namespace gpt::serve
