#include "gpt/serve/batcher.h"

#include <ATen/Parallel.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "generate/tiny_text_model.h"
#include "gpt/generate/generator.h"
#include "support/device_cases.h"
#include "support/some_adapters.h"

namespace gpt::serve {
namespace {

using namespace test;
using namespace std::chrono_literals;

// What came of the texts of a request, by choice.
struct Outcome {
  std::map<int64_t, std::string> texts, reasons;
  std::map<int64_t, std::vector<TokenScore>> scores;
  std::map<int64_t, int64_t> tokens;
  int status = 200;
};

Outcome wait_for(Task& task) {
  Outcome outcome;
  try {
    for (int64_t unfinished = task.choices(); unfinished > 0;) {
      const TextEvent event = *task.events.next(60s);
      outcome.texts[event.choice] += event.text;
      outcome.tokens[event.choice] += event.new_tokens;
      auto& scores = outcome.scores[event.choice];
      scores.insert(scores.end(), event.scores.begin(), event.scores.end());
      if (event.finish_reason.empty()) continue;
      outcome.reasons[event.choice] = event.finish_reason;
      --unfinished;
    }
  } catch (const ApiError& error) { outcome.status = error.status(); }
  return outcome;
}

class BatcherTest : public DeviceTest {
 protected:
  void start(int64_t slots, int64_t queue, bool runs = true) {
    session_.loaded.tokenizer = characters();
    session_.loaded.model = tiny_model(device(), session_.loaded.tokenizer->vocab_size());
    batcher_ = std::make_unique<Batcher>(session_, slots, queue);
    if (runs) run();
  }
  void run() {
    worker_ = std::thread([this] {
      at::set_num_threads(1);  // on a busy machine threads meet more slowly than this model computes
      batcher_->run([this] { return stops_.load(); });
    });
  }
  void stop() {
    stops_ = true;
    if (worker_.joinable()) worker_.join();
  }
  void TearDown() override { stop(); }

  std::shared_ptr<Task> task(std::vector<std::string> prompts, const generate::SamplingConfig& sampling,
                             int64_t n = 1) const {
    auto task = std::make_shared<Task>();
    for (const std::string& prompt : prompts) task->prompts.push_back({session_.loaded.tokenizer->encode(prompt)});
    task->sampling = sampling;
    task->n = n;
    return task;
  }
  // What generate() makes of a choice of the task.
  generate::GenerationResult expected(const Task& task, int64_t choice) {
    generate::SamplingConfig sampling = task.sampling;
    sampling.seed += choice;
    const std::string prompt = session_.loaded.tokenizer->decode(task.prompt_of(choice).tokens);
    const auto model = tiny_model(device(), session_.loaded.tokenizer->vocab_size());
    return generate::generate(*model, *session_.loaded.tokenizer, prompt, sampling, at::kFloat);
  }

  generate::Session session_;
  std::unique_ptr<Batcher> batcher_;
  std::thread worker_;
  std::atomic<bool> stops_{false};
};

// Texts of other lengths, with other settings and begun at other times: each is what it is alone. Also beyond the model's context, and with
// fewer slots than texts.
TEST_P(BatcherTest, EachTextIsTheOneOfItsSeed) {
  start(/*slots=*/3, /*queue=*/100);
  std::vector<std::shared_ptr<Task>> tasks;
  for (uint64_t i = 0; i < 8; ++i) {
    generate::SamplingConfig sampling{.temperature = 0.5 + i / 4.0,
                                      .max_new_tokens = static_cast<int64_t>(1 + 9 * i),
                                      .seed = 40 + i};
    if (i % 3 == 1) sampling.top_k = 5;
    if (i % 3 == 2) sampling.stop = {"a"};
    tasks.push_back(task({kCharacters.substr(i, 1 + i), "xy"}, sampling, i % 4 == 3 ? 2 : 1));
    ASSERT_TRUE(batcher_->submit(tasks.back()));
  }
  for (const auto& task : tasks) {
    const Outcome outcome = wait_for(*task);
    for (int64_t choice = 0; choice < task->choices(); ++choice) {
      const generate::GenerationResult alone = expected(*task, choice);
      EXPECT_EQ(outcome.texts.at(choice), alone.text);
      EXPECT_EQ(outcome.tokens.at(choice), alone.new_tokens);
      EXPECT_EQ(outcome.reasons.at(choice), alone.stop_reason == "length" ? "length" : "stop");
    }
  }
}

// The same prompts with the model and two adapters at once, and one after the other with fewer slots: each text is that of the model which its
// adapter is merged into, and so are the scores of its prompt.
TEST_P(BatcherTest, EachTextIsTheOneOfItsAdapter) {
  using enum layout::ParameterRole;
  const int64_t vocabulary = characters()->vocab_size();
  const auto plain = tiny_model(device(), vocabulary);
  const ModelConfig& config = plain->config();
  const std::vector adapters{some_adapter(config, {attention_in, attention_out, mlp_gate, mlp_in, mlp_out}, 2, 0.5, 3),
                             some_adapter(config, {attention_in, mlp_out}, 3, 0.5, 4)};
  for (const int64_t slots : {8, 1}) {
    start(slots, /*queue=*/100, /*runs=*/false);
    auto on_device = adapters;
    for (auto& adapter : on_device)
      for (auto& [site, outputs, a, b] : adapter) a = a.to(device()), b = b.to(device());
    const auto operators =
        std::make_shared<const ops::RowAdapters>(session_.loaded.model->operators(), on_device, at::kFloat);
    session_.loaded.model->set_operators(operators);
    batcher_ = std::make_unique<Batcher>(session_, slots, 100, operators);
    stops_ = false;
    run();
    std::vector<std::shared_ptr<Task>> tasks;
    for (const int64_t adapter : {1, -1, 0, 1, 0, -1}) {
      tasks.push_back(task({"abcdef", "xy"}, {.temperature = 0, .max_new_tokens = 24}));
      tasks.back()->adapter = adapter;
      tasks.back()->logprobs = 0, tasks.back()->scores_prompt = tasks.size() % 2 == 0;
      ASSERT_TRUE(batcher_->submit(tasks.back()));
    }
    std::set<std::string> texts;
    for (const auto& task : tasks) {
      const Outcome outcome = wait_for(*task);
      const parameters::NamedTensors weights = plain->parameters().values();
      model::GPT merged(config, device(),
                        task->adapter < 0 ? weights : with_adapter(config, weights, adapters[task->adapter]));
      for (int64_t choice = 0; choice < 2; ++choice) {
        const std::vector<int32_t>& prompt = task->prompt_of(choice).tokens;
        const std::string words = session_.loaded.tokenizer->decode(prompt);
        EXPECT_EQ(outcome.texts.at(choice),
                  generate::generate(merged, *session_.loaded.tokenizer, words, task->sampling, at::kFloat).text);
        texts.insert(outcome.texts.at(choice));
        if (!task->scores_prompt) continue;
        const c10::InferenceMode inference;
        const at::Tensor ids = at::tensor(std::vector<int64_t>(prompt.begin(), prompt.end())).unsqueeze(0);
        const at::Tensor of_merged =
            at::log_softmax(merged.forward(ids.to(device())).squeeze(0).to(at::kDouble), 1).cpu();
        for (size_t i = 1; i < prompt.size(); ++i)  // logits of up to some 100, of float32
          EXPECT_NEAR(*outcome.scores.at(choice)[i].logprob, of_merged[i - 1][prompt[i]].item<double>(), 1e-3);
      }
    }
    EXPECT_EQ(texts.size(), 6) << "adapters write otherwise";
    stop();
  }
}

class CharactersTokenizer : public tokenizer::Tokenizer {
 public:
  std::string name() const override { return inner_->name(); }
  int64_t vocab_size() const override { return inner_->vocab_size(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { inner_->encode(text, ids); }
  std::string decode(std::span<const int32_t> ids) const override { return inner_->decode(ids); }
  std::string piece(int32_t id, bool begins_text) const override { return inner_->piece(id, begins_text); }
  size_t last_cut(std::string_view text) const override { return inner_->last_cut(text); }
  std::string to_json() const override { return inner_->to_json(); }

 private:
  std::unique_ptr<tokenizer::Tokenizer> inner_ = characters();
};

// Puts an underscore before every token but one that begins a text, as others do with a space.
class UnderscoreTokenizer : public CharactersTokenizer {
 public:
  std::string piece(int32_t id, bool begins_text) const override {
    return (begins_text ? "" : "_") + CharactersTokenizer::piece(id, begins_text);
  }
};

class EndingTokenizer : public CharactersTokenizer {
 public:
  explicit EndingTokenizer(int32_t end) : special_{{"<|endoftext|>", end}} {}
  std::span<const tokenizer::SpecialToken> special_tokens() const override { return special_; }

 private:
  std::vector<tokenizer::SpecialToken> special_;
};

TEST_P(BatcherTest, ATextMayGoOnWhereTheModelEndsIt) {
  start(/*slots=*/2, /*queue=*/10, /*runs=*/false);
  const auto ends = task({"a"}, {.temperature = 0, .max_new_tokens = 9}), goes_on = task({"a"}, ends->sampling);
  const std::string whole = expected(*ends, 0).text;
  session_.loaded.tokenizer = std::make_unique<EndingTokenizer>(session_.loaded.tokenizer->encode(whole)[4]);
  goes_on->ignores_end = true;
  for (const auto& task : {ends, goes_on}) ASSERT_TRUE(batcher_->submit(task));
  run();
  const Outcome ended = wait_for(*ends), longer = wait_for(*goes_on);
  const size_t length = whole.find(whole[4]);  // the first of these characters is the end
  EXPECT_EQ(ended.texts.at(0), whole.substr(0, length));
  EXPECT_EQ(ended.reasons.at(0), "stop");
  std::string without_end = whole;
  std::erase(without_end, whole[4]);
  EXPECT_EQ(longer.texts.at(0), without_end);
  EXPECT_EQ(longer.tokens.at(0), 9);
  EXPECT_EQ(longer.reasons.at(0), "length");
}

TEST_P(BatcherTest, ATextWithoutAPromptBeginsWithItsFirstToken) {
  start(/*slots=*/2, /*queue=*/10, /*runs=*/false);
  session_.loaded.tokenizer = std::make_unique<UnderscoreTokenizer>();
  const auto both = task({"a", "a"}, {.temperature = 0, .max_new_tokens = 2});
  both->prompts[1].has_text = false;  // its token stands for an empty text
  ASSERT_TRUE(batcher_->submit(both));
  run();
  const Outcome outcome = wait_for(*both);
  EXPECT_EQ(outcome.texts.at(0), "_" + outcome.texts.at(1));
}

TEST_P(BatcherTest, TellsHowLikelyTokensAre) {
  start(2, 10);
  const auto scored = task({"abcde"}, {.temperature = 2, .max_new_tokens = 6, .seed = 3});
  scored->logprobs = 3;
  scored->scores_prompt = true;
  ASSERT_TRUE(batcher_->submit(scored));
  const Outcome outcome = wait_for(*scored);
  EXPECT_EQ(outcome.texts.at(0), expected(*scored, 0).text);
  std::vector<int32_t> ids = scored->prompts[0].tokens;
  for (const int32_t id : session_.loaded.tokenizer->encode(outcome.texts.at(0))) ids.push_back(id);
  const auto& scores = outcome.scores.at(0);
  ASSERT_EQ(scores.size(), ids.size());
  EXPECT_FALSE(scores[0].logprob);
  stop();
  const c10::InferenceMode inference;
  session_.loaded.model->train(false);
  const at::Tensor input = at::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0).to(device());
  const at::Tensor logprobs =
      at::log_softmax(session_.loaded.model->forward(input).squeeze(0).to(at::kDouble), 1).cpu();
  for (size_t i = 1; i < ids.size(); ++i) {
    EXPECT_EQ(scores[i].id, ids[i]);
    // Logits of up to some 30, of float32 and over 16 positions; the cache orders sums in another way.
    EXPECT_NEAR(*scores[i].logprob, logprobs[i - 1][ids[i]].item<double>(), 1e-4);
    ASSERT_EQ(scores[i].top.size(), 3);
    EXPECT_EQ(scores[i].top[0].first, logprobs[i - 1].argmax().item<int64_t>());
    EXPECT_NEAR(scores[i].top[0].second, logprobs[i - 1].max().item<double>(), 1e-4);
    EXPECT_GE(scores[i].top[1].second, scores[i].top[2].second);
  }
}

TEST_P(BatcherTest, APromptAloneCanBeScored) {
  start(1, 10);
  const std::string whole = kCharacters.substr(2, kBlockSize);
  for (const int64_t tokens : {0, 1}) {
    const auto scored = task({whole, "ab"}, {.temperature = 0, .max_new_tokens = tokens});
    scored->logprobs = 1;
    scored->scores_prompt = true;
    ASSERT_TRUE(batcher_->submit(scored));
    const Outcome outcome = wait_for(*scored);
    EXPECT_EQ(outcome.scores.at(0).size(), kBlockSize + tokens);
    EXPECT_EQ(outcome.scores.at(1).size(), 2 + tokens);
    EXPECT_EQ(outcome.reasons.at(0), "length");
    EXPECT_EQ(outcome.texts.at(0), expected(*scored, 0).text);
  }
}

TEST_P(BatcherTest, WaitsForNoReaderAndFreesTheSlotsOfThoseWhoLeave) {
  start(1, 10);
  const auto unread = task({"a"}, {.temperature = 2, .max_new_tokens = 1'000'000'000});
  ASSERT_TRUE(batcher_->submit(unread));  // nobody reads it: its queue fills up, and it ends
  const auto left = task({"b", "c"}, {.temperature = 2, .max_new_tokens = 1'000'000'000});
  ASSERT_TRUE(batcher_->submit(left));
  while (!unread->events.is_over()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(wait_for(*unread).status, 503);
  left->events.next(60s);
  left->events.leave();
  const auto last = task({"d"}, {.max_new_tokens = 3});
  ASSERT_TRUE(batcher_->submit(last));
  EXPECT_EQ(wait_for(*last).tokens.at(0), 3);
  while (batcher_->state().slots_in_use > 0) std::this_thread::sleep_for(1ms);
}

TEST_P(BatcherTest, TakesAsManyAsFitAndTellsTheRest) {
  start(/*slots=*/2, /*queue=*/3, /*runs=*/false);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(batcher_->submit(task({"a"}, {}))) << i;
  EXPECT_FALSE(batcher_->submit(task({"a"}, {})));
  EXPECT_EQ(batcher_->state().queued, 5);
}

TEST_P(BatcherTest, StoppingEndsAllRequests) {
  start(1, 10);
  const auto running = task({"a"}, {.temperature = 2, .max_new_tokens = 1'000'000'000}), waiting = task({"b"}, {});
  ASSERT_TRUE(batcher_->submit(running));
  running->events.next(60s);
  ASSERT_TRUE(batcher_->submit(waiting));
  stop();
  EXPECT_EQ(wait_for(*running).status, 503);
  EXPECT_EQ(wait_for(*waiting).status, 503);
  const auto late = task({"c"}, {});
  EXPECT_TRUE(batcher_->submit(late));
  EXPECT_EQ(wait_for(*late).status, 503);
}

// Weights that a diverged run has left.
TEST_P(BatcherTest, LogitsThatAreNotFiniteEndTheRequestAndNotTheServer) {
  start(1, 10, /*runs=*/false);
  session_.loaded.model->parameters().flat_values().fill_(std::numeric_limits<float>::quiet_NaN());
  run();
  for (int i = 0; i < 2; ++i) {
    const auto one = task({"a"}, {});
    ASSERT_TRUE(batcher_->submit(one));
    EXPECT_EQ(wait_for(*one).status, 500);
  }
}

INSTANTIATE_ON_DEVICES(BatcherTest);

}  // namespace
}  // namespace gpt::serve
