#include "prompts.h"

#include <algorithm>
#include <utility>

#include "gpt/core/text.h"
#include "gpt/evaluate/python_text.h"

namespace gpt::evaluate {
namespace {

// Without what stands in brackets within a line.
std::string without_brackets(std::string_view text) {
  std::string result;
  for (size_t begin = 0;;) {
    const size_t open = text.find('[', begin), close = open == text.npos ? text.npos : text.find_first_of("]\n", open);
    if (close == text.npos) return result += text.substr(begin);
    const bool is_pair = text[close] == ']';
    result += text.substr(begin, (is_pair ? open : open + 1) - begin);
    begin = is_pair ? close + 1 : open + 1;
  }
}

// What WikiHow's markup leaves in HellaSwag's texts is taken out.
std::string cleaned(std::string_view text) {
  return replaced(without_brackets(replaced(strip(text), " [title]", ". ")), "  ", " ");
}

Question hellaswag(const Fields& line) {
  const bool has_parts = line.has("ctx_a");
  const std::string second = has_parts && line.has("ctx_b") ? line.text("ctx_b") : "";
  const std::string context = has_parts ? line.text("ctx_a") + " " + capitalize(second) : line.text("ctx");
  Question question{cleaned(line.text("activity_label") + ": " + context), line.texts("endings"), 0};
  for (std::string& ending : question.answers) ending = cleaned(ending);
  question.label = line.index("label", std::ssize(question.answers));
  return question;
}

std::string asked(const std::string& question) { return "Question: " + question + "\nAnswer:"; }

// With choices as two lists, or as its authors have it: a list of objects within the question.
Question arc(const Fields& line) {
  Question question;
  std::vector<std::string> labels;
  if (line.has("choices")) {
    const Fields choices = line.inside("choices");
    question = {asked(line.text("question")), choices.texts("text"), 0};
    labels = choices.texts("label");
    if (labels.size() != question.answers.size()) choices.refuse("label", "one is needed for each text");
  } else {
    const Fields stem = line.inside("question");
    question.context = asked(stem.text("stem"));
    for (const Fields& choice : stem.list("choices")) {
      question.answers.push_back(choice.text("text"));
      labels.push_back(choice.text("label"));
    }
  }
  const auto right = std::find(labels.begin(), labels.end(), line.text("answerKey"));
  if (right == labels.end()) line.refuse("answerKey", "none of the choices has this label");
  question.label = right - labels.begin();
  return question;
}

Question piqa(const Fields& line) {
  return {asked(line.text("goal")), {line.text("sol1"), line.text("sol2")}, line.index("label", 2)};
}

// Without the white space inside each pair of these, of which the first that can close one does.
std::string tightened(std::string_view text, char open, char close) {
  std::string result;
  for (size_t begin = 0;;) {
    const size_t first = text.find(open, begin), last = first == text.npos ? first : text.find(close, first + 1);
    if (last == text.npos) return result += text.substr(begin);
    result += text.substr(begin, first + 1 - begin);
    result += strip(text.substr(first + 1, last - first - 1));
    result += close;
    begin = last + 1;
  }
}

}  // namespace

Question question_of(TaskKind kind, const Fields& line) {
  return kind == TaskKind::hellaswag ? hellaswag(line) : kind == TaskKind::arc ? arc(line) : piqa(line);
}

Cloze cloze_of(std::string_view text) {
  const size_t space = text.rfind(' ');
  if (space == text.npos) return {"", std::string(1, ' ').append(text)};
  return {std::string(text.substr(0, space)), std::string(text.substr(space))};
}

std::string wikitext_as_written(std::string_view page) {
  std::string text(page);
  const auto replace = [&text](std::initializer_list<std::pair<const char*, const char*>> pairs) {
    for (const auto& [from, to] : pairs) text = replaced(text, from, to);
  };
  replace({{"s '", "s'"},
           {" @-@ ", "-"},
           {" @,@ ", ","},
           {" @.@ ", "."},
           {" : ", ": "},
           {" ; ", "; "},
           {" . ", ". "},
           {" ! ", "! "},
           {" ? ", "? "},
           {" , ", ", "}});
  for (const auto& [open, close] : {std::pair('(', ')'), {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}})
    text = tightened(text, open, close);
  replace({{"= = = =", "===="},
           {"= = =", "==="},
           {"= =", "=="},
           {" ° ", "°"},
           {" \n", "\n"},
           {"\n ", "\n"},
           {" N ", " 1 "},
           {" 's", "'s"}});
  return text;
}

}  // namespace gpt::evaluate
