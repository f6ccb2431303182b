// The fields of a request, read one by one: what is wrong is refused by its name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/serve/answer_request.h"

namespace gpt::serve {

// Throws ApiError.
[[noreturn]] void refuse(const std::string& message, const std::string& field = {}, int status = 400);
// The object that a body is. Throws ApiError for what is none.
nlohmann::json parse_object(std::string_view body);
// A value as messages show it.
std::string shown(const nlohmann::json& value);

// The fields of an object, each of which is asked for once. null is a field that is missing, as clients mean it. All throw ApiError.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  const nlohmann::json* find(const std::string& name);
  int64_t integer(const char* name, int64_t otherwise, int64_t least, int64_t most);
  double number(const char* name, double otherwise, double least, double most);
  bool boolean(const char* name);

  // A field that is not supported may have the value that changes nothing.
  void only(const std::string& name, const nlohmann::json& nothing, const char* instead = nullptr);

  // Those of other servers may have the values that change nothing; what nobody knows is refused where that is wanted.
  std::vector<AnswerRequest::LeftOut> leave_out_others(bool refuses_unknown);

  std::string full(const std::string& name) const { return prefix_ + name; }

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  std::set<std::string> known_;
};

// Fields that several requests have: the model, what is drawn but for its length, and how the answer is told.
size_t read_model(Fields& fields, const CompletionRules& rules);
void read_sampling(Fields& fields, generate::SamplingConfig& sampling);
void read_stream(Fields& fields, bool refuses_unknown, AnswerRequest& request);
void refuse_other_sampling(Fields& fields);

}  // namespace gpt::serve
