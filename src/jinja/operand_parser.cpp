// What expressions are made of: names, literals, calls, parts and filters of values.
#include <fmt/format.h>

#include <charconv>

#include "error_at.h"
#include "parser.h"

namespace gpt::jinja {
namespace {

ExpressionPtr constant(Value value, int line) {
  auto node = std::make_unique<Constant>(std::move(value));
  node->line = line;
  return node;
}

Value number(const Token& token) {
  const char *const begin = token.value.data(), *const end = begin + token.value.size();
  int64_t whole = 0;
  double real = 0;
  const bool fits = token.kind == Token::integer ? std::from_chars(begin, end, whole).ec == std::errc()
                                                 : std::from_chars(begin, end, real).ec == std::errc();
  if (!fits) fail_at(token.line, fmt::format("the number {} is too large", token.value));
  return token.kind == Token::integer ? Value(whole) : Value(real);
}

}  // namespace

ExpressionPtr ExpressionParser::primary() {
  const Tokens::Depth depth(tokens_);
  const Token token = tokens_.now();
  if (token.is(Token::sign, "(") || token.is(Token::sign, "[")) return bracket();
  if (token.is(Token::sign, "{")) return mapping();
  if (token.kind == Token::string) {
    std::string text;  // strings side by side are one
    while (tokens_.now().kind == Token::string) text += tokens_.take().value;
    return constant(std::move(text), token.line);
  }
  if (token.kind == Token::integer || token.kind == Token::real) return constant(number(tokens_.take()), token.line);
  const std::string name = tokens_.take_name();
  if (name == "true" || name == "True") return constant(true, token.line);
  if (name == "false" || name == "False") return constant(false, token.line);
  if (name == "none" || name == "None") return constant(None{}, token.line);
  auto node = std::make_unique<Name>(name);
  node->line = token.line;
  return node;
}

ExpressionPtr ExpressionParser::bracket() {
  const Token open = tokens_.take();
  auto node = node_at<ListOf>(open.line);
  node->is_tuple = open.value == "(";
  const char* const close = node->is_tuple ? ")" : "]";
  bool has_comma = false;
  while (!tokens_.is_sign(close)) {
    node->items.push_back(expression());
    if (!tokens_.skip_sign(",")) break;
    has_comma = true;
  }
  tokens_.expect(Token::sign, close);
  if (node->is_tuple && node->items.size() == 1 && !has_comma) return std::move(node->items[0]);
  return node;
}

ExpressionPtr ExpressionParser::mapping() {
  auto node = node_at<MappingOf>(tokens_.take().line);
  while (!tokens_.is_sign("}")) {
    ExpressionPtr key = expression();
    tokens_.expect(Token::sign, ":");
    node->entries.emplace_back(std::move(key), expression());
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect(Token::sign, "}");
  return node;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr of) {
  Tokens::Depth depth(tokens_);
  for (;; depth.more()) {
    if (tokens_.is_sign(".")) {
      of = dotted(std::move(of));
    } else if (tokens_.is_sign("[")) {
      of = subscript(std::move(of));
    } else if (tokens_.is_sign("(")) {
      of = called(std::move(of));
    } else {
      return of;
    }
  }
}

ExpressionPtr ExpressionParser::dotted(ExpressionPtr of) {
  const int line = tokens_.take().line;
  if (tokens_.now().kind == Token::integer) {
    auto node = node_at<Item>(line);
    node->of = std::move(of), node->key = constant(number(tokens_.take()), line);
    return node;
  }
  auto node = node_at<Attribute>(line);
  node->of = std::move(of), node->name = tokens_.take_name();
  return node;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of) {
  const int line = tokens_.take().line;
  const auto part = [&]() -> ExpressionPtr {
    return tokens_.is_sign(":") || tokens_.is_sign("]") ? nullptr : expression();
  };
  ExpressionPtr first = part();
  if (!tokens_.is_sign(":")) {
    if (!first) tokens_.refuse();
    auto node = node_at<Item>(line);
    node->of = std::move(of), node->key = std::move(first);
    tokens_.expect(Token::sign, "]");
    return node;
  }
  auto node = node_at<Slice>(line);
  tokens_.take();
  node->of = std::move(of), node->start = std::move(first), node->stop = part();
  if (tokens_.skip_sign(":")) node->step = part();
  tokens_.expect(Token::sign, "]");
  return node;
}

CallArguments ExpressionParser::arguments() {
  CallArguments arguments;
  tokens_.expect(Token::sign, "(");
  while (!tokens_.is_sign(")")) {
    if (tokens_.is_sign("*") || tokens_.is_sign("**"))
      fail_at(tokens_.now().line, "arguments that are unpacked, with * or **, are not supported");
    if (tokens_.now().kind == Token::name && tokens_.next().is(Token::sign, "=")) {
      std::string name = tokens_.take_name();
      tokens_.take();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      if (!arguments.named.empty()) tokens_.refuse();
      arguments.positional.push_back(expression());
    }
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect(Token::sign, ")");
  return arguments;
}

ExpressionPtr ExpressionParser::called(ExpressionPtr function) {
  auto node = node_at<Call>(tokens_.now().line);
  node->function = std::move(function), node->arguments = arguments();
  return node;
}

std::unique_ptr<Filtered> ExpressionParser::filter() {
  auto node = node_at<Filtered>(tokens_.now().line);
  node->name = tokens_.take_name();
  node->filter = find_filter(node->name);
  if (!node->filter) fail_at(node->line, fmt::format("the filter '{}' is not supported", node->name));
  if (tokens_.is_sign("(")) node->arguments = arguments();
  return node;
}

ExpressionPtr ExpressionParser::filters_of(ExpressionPtr of) {
  Tokens::Depth depth(tokens_);
  for (;; depth.more()) {
    if (tokens_.skip_sign("|")) {
      auto node = filter();
      node->of = std::move(of);
      of = std::move(node);
    } else if (tokens_.skip_name("is")) {
      of = tested(std::move(of));
    } else if (tokens_.is_sign("(")) {
      of = called(std::move(of));
    } else {
      return of;
    }
  }
}

// Behind `is`. One argument needs no brackets: x is divisibleby 3.
ExpressionPtr ExpressionParser::tested(ExpressionPtr of) {
  const bool is_inverted = tokens_.skip_name("not");
  auto node = node_at<Filtered>(tokens_.now().line);
  node->of = std::move(of), node->name = tokens_.take_name();
  node->filter = find_test(node->name);
  if (!node->filter) fail_at(node->line, fmt::format("the test '{}' is not supported", node->name));
  const Token& token = tokens_.now();
  const bool is_value =
      token.kind == Token::string || token.kind == Token::integer || token.kind == Token::real ||
      tokens_.is_sign("[") || tokens_.is_sign("{") ||
      (token.kind == Token::name && !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and"));
  if (tokens_.is_name("is"))
    fail_at(token.line, "several tests with 'is' cannot follow each other: join them with 'and'");
  if (tokens_.is_sign("(")) {
    node->arguments = arguments();
  } else if (is_value) {
    node->arguments.positional.push_back(postfix(primary()));
  }
  if (!is_inverted) return node;
  auto inverted = node_at<Negative>(node->line);
  inverted->is_not = true, inverted->of = std::move(node);
  return inverted;
}

}  // namespace gpt::jinja
