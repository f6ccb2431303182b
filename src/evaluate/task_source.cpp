#include "gpt/evaluate/task_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"
#include "gpt/evaluate/python_text.h"
#include "json_lines.h"
#include "prompts.h"

namespace gpt::evaluate {
namespace {

// What tasks have in common: the lines of their file, and errors that say in which of them a fault is.
class LineSource : public ExampleSource {
 public:
  LineSource(const Task& task, const Encoding& encoding) : task_(task), encoding_(encoding), lines_(task.file) {}
  double share() const override { return lines_.share(); }

 protected:
  std::optional<nlohmann::json> next_line() {
    std::optional<nlohmann::json> line = lines_.next();
    if (!line && !has_line_) fail(task_.file, fmt::format("it is empty; {} needs one JSON object a line", task_.name));
    has_line_ = true;
    return line;
  }

  std::string place() const { return lines_.place(); }
  Fields fields_of(const nlohmann::json& line) const { return {line, place()}; }

  // `what`: the part of the line that the continuation is.
  Request encode(const std::string& what, std::string_view context, std::string_view continuation) const {
    try {
      return encode_pair(encoding_, context, continuation);
    } catch (const Error& error) { fail(fmt::format("{}: {}", place(), what), error.what()); }
  }

  const Task task_;
  const Encoding encoding_;

 private:
  JsonLines lines_;
  bool has_line_ = false;
};

class Questions final : public LineSource {
 public:
  using LineSource::LineSource;
  Form form() const override { return Form::choices; }

  std::optional<Example> next() override {
    const std::optional<nlohmann::json> line = next_line();
    if (!line) return std::nullopt;
    const Question question = question_of(task_.kind, fields_of(*line));
    Example example{.requests = {}, .label = question.label};
    for (const std::string& answer : question.answers) {
      const std::string what = fmt::format("the answer '{}'", shortened(printable_line(answer), 60));
      example.requests.push_back(encode(what, question.context, " " + answer));
      example.lengths.push_back({characters(answer), std::ssize(answer)});
    }
    return example;
  }
};

class ClozeTexts final : public LineSource {
 public:
  using LineSource::LineSource;
  Form form() const override { return Form::cloze; }

  std::optional<Example> next() override {
    const std::optional<nlohmann::json> line = next_line();
    if (!line) return std::nullopt;
    const Cloze cloze = cloze_of(fields_of(*line).text("text"));
    return Example{.requests = {encode("the last word", cloze.context, cloze.ending)}};
  }
};

// The pages of WikiText. Words and bytes are those of the file, as lm-evaluation-harness has it.
class Pages final : public LineSource {
 public:
  Pages(const Task& task, const Encoding& encoding, int64_t stride)
      : LineSource(task, encoding), windows_(encoding.window, stride) {}
  Form form() const override { return Form::text; }

  std::optional<Example> next() override {
    for (;;) {
      if (std::optional<Request> request = windows_.next()) {
        Example example{.requests = {std::move(*request)}, .document = document_};
        left_ -= example.requests[0].scored;
        if (left_ == 0) example.bytes = bytes_, example.words = words_;
        return example;
      }
      if (!begin_page()) return std::nullopt;
    }
  }

 private:
  bool begin_page() {
    const std::optional<nlohmann::json> line = next_line();
    if (!line) return false;
    const std::string page = fields_of(*line).text("page");
    WordCount count;
    count.add(page);
    bytes_ = std::ssize(page), words_ = count.words();
    ++document_;
    const std::vector<int32_t> ids = encode_page(wikitext_as_written(page));
    windows_.begin(encoding_.prefix);
    windows_.add(ids);
    windows_.end();
    left_ = std::ssize(ids) - !encoding_.prefix;
    return true;
  }

  std::vector<int32_t> encode_page(const std::string& text) const {
    try {
      return encoding_.text(text);
    } catch (const Error& error) { fail(place(), error.what()); }
  }

  RollingWindows windows_;
  int64_t document_ = -1, bytes_ = 0, words_ = 0;
  int64_t left_ = 0;  // tokens of the page that are still to be predicted
};

}  // namespace

std::unique_ptr<ExampleSource> open_task(const Task& task, const Encoding& encoding, int64_t stride) {
  if (task.kind == TaskKind::wikitext) return std::make_unique<Pages>(task, encoding, stride);
  if (task.kind == TaskKind::lambada) return std::make_unique<ClozeTexts>(task, encoding);
  return std::make_unique<Questions>(task, encoding);
}

}  // namespace gpt::evaluate
