#include <fmt/format.h>

#include <algorithm>

#include "error_at.h"
#include "parser.h"

namespace gpt::jinja {

std::string Tokens::take_name() {
  if (now().kind != Token::name) refuse();
  return take().value;
}

void Tokens::expect(Token::Kind kind, std::string_view value) {
  if (now().kind != kind || (!value.empty() && now().value != value)) refuse();
  take();
}

void Tokens::refuse() const {
  switch (now().kind) {
    case Token::end: fail_at(now().line, "the template ends within a block");
    case Token::end_block:
    case Token::end_output: fail_at(now().line, fmt::format("unexpected {}", now().value));
    default: fail_at(now().line, fmt::format("unexpected '{}'", now().value));
  }
}

void Tokens::Depth::more() {
  constexpr int kDeepest = 100;
  if (tokens_.depth_ >= kDeepest) fail_at(tokens_.now().line, "expressions or blocks are nested too deeply");
  ++tokens_.depth_, ++levels_;
}

ExpressionPtr ExpressionParser::expression(bool may_be_conditional) {
  Tokens::Depth depth(tokens_);
  ExpressionPtr value = either();
  while (may_be_conditional && tokens_.is_name("if")) {
    depth.more();
    auto node = node_at<Conditional>(tokens_.take().line);
    node->condition = either();
    if (tokens_.skip_name("else")) node->otherwise = expression();
    node->then = std::move(value);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::tuple(bool may_be_conditional) {
  const int line = tokens_.now().line;
  ExpressionPtr first = expression(may_be_conditional);
  if (!tokens_.is_sign(",")) return first;
  auto node = node_at<ListOf>(line);
  node->is_tuple = true;
  node->items.push_back(std::move(first));
  while (tokens_.skip_sign(",")) {
    const Token::Kind kind = tokens_.now().kind;
    if (kind == Token::end_output || kind == Token::end_block || tokens_.is_sign(")")) break;
    node->items.push_back(expression(may_be_conditional));
  }
  return node;
}

Target ExpressionParser::target(bool may_be_attribute) {
  Target target;
  const bool in_brackets = tokens_.skip_sign("(");
  target.names.push_back(tokens_.take_name());
  if (may_be_attribute && tokens_.skip_sign(".")) target.attribute = tokens_.take_name();
  while (tokens_.skip_sign(",")) {
    target.is_tuple = true;
    if (tokens_.now().kind != Token::name || tokens_.is_name("in")) break;
    target.names.push_back(tokens_.take_name());
  }
  if (in_brackets) tokens_.expect(Token::sign, ")");
  for (const std::string& name : target.names)
    if (name == "true" || name == "false" || name == "none" || name == "loop")
      fail_at(tokens_.now().line, fmt::format("'{}' cannot be assigned to", name));
  return target;
}

ExpressionPtr ExpressionParser::either() {
  Tokens::Depth depth(tokens_);
  ExpressionPtr left = both();
  while (tokens_.is_name("or")) {
    depth.more();
    auto node = node_at<Junction>(tokens_.take().line);
    node->left = std::move(left), node->right = both();
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::both() {
  Tokens::Depth depth(tokens_);
  ExpressionPtr left = inverted();
  while (tokens_.is_name("and")) {
    depth.more();
    auto node = node_at<Junction>(tokens_.take().line);
    node->is_and = true;
    node->left = std::move(left), node->right = inverted();
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::inverted() {
  if (!tokens_.is_name("not")) return comparison();
  const Tokens::Depth depth(tokens_);
  auto node = node_at<Negative>(tokens_.take().line);
  node->is_not = true;
  node->of = inverted();
  return node;
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::string_view kSigns[] = {"==", "!=", ">", ">=", "<", "<="};
  ExpressionPtr first = calculation(0);
  auto node = node_at<Comparison>(tokens_.now().line);
  for (;;) {
    std::string sign;
    if (tokens_.now().kind == Token::sign && std::count(std::begin(kSigns), std::end(kSigns), tokens_.now().value) > 0)
      sign = tokens_.take().value;
    if (sign.empty() && tokens_.skip_name("in")) sign = "in";
    if (sign.empty() && tokens_.is_name("not") && tokens_.next().is(Token::name, "in"))
      tokens_.take(), tokens_.take(), sign = "not in";
    if (sign.empty()) break;
    node->others.emplace_back(std::move(sign), calculation(0));
  }
  if (node->others.empty()) return first;
  node->first = std::move(first);
  return node;
}

// + and - bind least, then ~, then * / // %, then **.
ExpressionPtr ExpressionParser::calculation(int level) {
  static const std::vector<std::string_view> kSigns[] = {{"+", "-"}, {"*", "/", "//", "%"}, {"**"}};
  Tokens::Depth depth(tokens_);
  const auto operand = [&] { return level == 0 ? concatenation() : level == 1 ? calculation(2) : with_sign(true); };
  ExpressionPtr left = operand();
  while (tokens_.now().kind == Token::sign &&
         std::count(kSigns[level].begin(), kSigns[level].end(), tokens_.now().value) > 0) {
    depth.more();
    auto node = node_at<Calculation>(tokens_.now().line);
    node->sign = tokens_.take().value;
    node->left = std::move(left), node->right = operand();
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = calculation(1);
  if (!tokens_.is_sign("~")) return first;
  auto node = node_at<Concatenation>(tokens_.now().line);
  node->parts.push_back(std::move(first));
  while (tokens_.skip_sign("~")) node->parts.push_back(calculation(1));
  return node;
}

ExpressionPtr ExpressionParser::with_sign(bool with_filters) {
  const Tokens::Depth depth(tokens_);
  ExpressionPtr value;
  if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
    auto node = node_at<Negative>(tokens_.now().line);
    node->is_plus = tokens_.take().value == "+";
    node->of = with_sign(false);
    value = std::move(node);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters_of(std::move(value)) : std::move(value);
}

}  // namespace gpt::jinja
