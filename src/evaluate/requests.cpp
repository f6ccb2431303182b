#include "gpt/evaluate/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/evaluate/python_text.h"
#include "gpt/generate/prompt.h"

namespace gpt::evaluate {
namespace {

[[noreturn]] void refuse_pair(const std::string& why) { throw Error(ExitCode::data, why); }

// Context and continuation one after the other, of which the last `scored` are the continuation.
Request joined(std::vector<int32_t> ids, size_t scored, int64_t window) {
  const auto count = static_cast<int64_t>(scored);
  if (count == 0) refuse_pair("it is no token by itself, so it has no probability");
  if (count > window) {
    refuse_pair(fmt::format("it is {} long, and the window has {}; shorten it, or use a model with a longer context",
                            plural(count, "token"), with_commas(window)));
  }
  const int64_t surplus = std::max<int64_t>(0, std::ssize(ids) - (window + 1));
  ids.erase(ids.begin(), ids.begin() + surplus);
  return {std::move(ids), count, surplus > 0};
}

}  // namespace

Encoding::Encoding(const tokenizer::Tokenizer& tokenizer, int64_t window, std::vector<int32_t> before_texts)
    : tokenizer(tokenizer), window(window), prefix(tokenizer.begin_of_text()), before_texts(std::move(before_texts)) {
  if (!prefix) prefix = tokenizer.end_of_text();
}

std::vector<int32_t> Encoding::text(std::string_view text) const {
  return generate::with_prefix(before_texts, tokenizer.encode_with_specials(text));
}

Request encode_pair(const Encoding& encoding, std::string_view context, std::string_view continuation) {
  const size_t space = trailing_space(context);
  const std::string_view before = context.substr(0, context.size() - space);
  const std::string both = std::string(context).append(continuation);
  if (!before.empty()) {
    std::vector<int32_t> ids = encoding.text(both);
    const size_t known = encoding.text(before).size();
    const size_t scored = ids.size() - std::min(known, ids.size());
    return joined(std::move(ids), scored, encoding.window);
  }
  std::vector<int32_t> ids = encoding.tokenizer.encode_with_specials(both);
  if (!encoding.prefix)
    refuse_pair("nothing comes before it, and the tokenizer has no token that begins or ends a text");
  if (!ids.empty() && ids[0] == *encoding.prefix) {
    const size_t scored = ids.size() - 1;
    return joined(std::move(ids), scored, encoding.window);
  }
  const size_t scored = ids.size();
  ids.insert(ids.begin(), *encoding.prefix);
  return joined(std::move(ids), scored, encoding.window);
}

void RollingWindows::begin(std::optional<int32_t> prefix) {
  ids_.clear();
  if (prefix) ids_.push_back(*prefix);
  predicted_ = 1;
  is_first_ = true;
  is_ended_ = false;
}

void RollingWindows::add(std::span<const int32_t> ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }

std::optional<Request> RollingWindows::next() {
  const int64_t most = is_first_ ? window_ : stride_, waiting = std::ssize(ids_) - predicted_;
  if (waiting <= 0 || (waiting <= most && !is_ended_)) return std::nullopt;  // the last window is known as such
  const int64_t scored = std::min(most, waiting), end = predicted_ + scored;
  const int64_t begin = std::max<int64_t>(0, end - (window_ + 1));
  Request request{{ids_.begin() + begin, ids_.begin() + end}, scored};
  predicted_ = end;
  is_first_ = false;
  if (predicted_ > 64 * (window_ + 1)) {  // seldom, because it moves what remains
    ids_.erase(ids_.begin(), ids_.begin() + predicted_ - window_);
    predicted_ = window_;
  }
  return request;
}

}  // namespace gpt::evaluate
