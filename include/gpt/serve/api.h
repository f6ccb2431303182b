// The routes of the server: who may ask what, and what is answered. Called from many connections at once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/chat/chat_template.h"
#include "gpt/http/server.h"
#include "gpt/serve/batcher.h"
#include "gpt/serve/chat_request.h"
#include "gpt/serve/completion_request.h"
#include "gpt/serve/completion_response.h"
#include "gpt/serve/encoder.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::serve {

// The model, or the model with one of its adapters.
struct ServedModel {
  std::string name;
  std::string root;  // where it was loaded from
  // How it is talked to; nothing: it is not, because of this.
  std::optional<chat::ChatTemplate> chat_template = {};
  std::string no_chat = {};
  bool is_chat_fallback = false;   // it came without a template
  std::vector<int32_t> ends = {};  // what its texts end at
};

struct ApiOptions {
  CompletionRules completions;
  std::string api_key = {};  // empty: none is asked for
  // Models behind the names in `completions`: first the model alone, and then with each adapter in the order that the batcher has them in.
  std::vector<ServedModel> models = {};
};

class Api : public http::Handler {
 public:
  // Both must outlive it.
  Api(ApiOptions options, const generate::Session& session, Batcher& batcher);

  void answer(const http::Request& request, http::Responder& responder) override;
  void refuse(const http::Refusal& refusal, http::Responder& responder) override;

 private:
  int64_t route(const http::Request& request, http::Responder& responder);
  void check_origin(const http::Request& request) const;
  void check_key(const http::Request& request) const;
  std::string models() const;
  std::string model(const std::string& name) const;
  bool can_chat() const;  // any of the models
  const ServedModel& served(const AnswerRequest& request) const { return options_.models[request.model]; }
  std::string health() const;
  int64_t complete(const http::Request& request, http::Responder& responder);
  int64_t chat(const http::Request& request, http::Responder& responder);
  int64_t answer_with(const AnswerRequest& request, const std::shared_ptr<Task>& task, CompletionWriter& writer,
                      http::Responder& responder);
  std::shared_ptr<Task> make_task(const CompletionRequest& request);
  std::shared_ptr<Task> make_chat_task(const ChatRequest& request);
  std::vector<int32_t> encode_dialogue(const chat::ChatTemplate& chat_template, chat::Dialogue dialogue);
  std::vector<int32_t> encode(const std::string& prompt);
  Task::Prompt read_prompt(const CompletionRequest& request, size_t number);
  int64_t unspelled_prefix(const std::string& text, const std::vector<int32_t>& tokens) const;
  void name_left_out(const AnswerRequest& request);
  std::vector<std::string> echoes(const CompletionRequest& request, const Task& task) const;

  const ApiOptions options_;
  const generate::Session& session_;
  Encoder encoder_;
  Batcher& batcher_;
  const int64_t created_;
  std::mutex mutex_;
  std::set<std::string> named_;  // fields that were left out
};

}  // namespace gpt::serve
