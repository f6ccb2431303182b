#include "parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "error_at.h"

namespace gpt::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : tokens_(read_tokens(source)), expressions_(tokens_) {}

  Statements read() {
    Statements statements = body({});
    if (tokens_.now().kind != Token::end) refuse_block(tokens_.next());
    return statements;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Up to one of the blocks of these names, which stays, at its {%.
  Statements body(Names ends) {
    const Tokens::Depth depth(tokens_);
    Statements statements;
    while (tokens_.now().kind != Token::end) {
      const Token& name = tokens_.next();
      if (tokens_.now().kind == Token::begin_block && std::count(ends.begin(), ends.end(), name.value) > 0) break;
      statements.all.push_back(statement());
    }
    return statements;
  }

  std::unique_ptr<const Statement> statement() {
    const Token token = tokens_.take();
    std::unique_ptr<Statement> made;
    if (token.kind == Token::text) {
      made = std::make_unique<Text>(token.value);
    } else if (token.kind == Token::begin_output) {
      auto output = std::make_unique<Output>();
      output->what = expressions_.tuple();
      tokens_.expect(Token::end_output, "");
      made = std::move(output);
    } else {
      made = block();
    }
    made->line = token.line;
    return made;
  }

  std::unique_ptr<Statement> block() {
    const Token name = tokens_.now();
    tokens_.take_name();
    if (name.value == "if") return if_block();
    if (name.value == "for") return for_block();
    if (name.value == "set") return set_block();
    if (name.value == "macro") return macro();
    if (name.value == "generation") return generation();
    if (name.value == "break" || name.value == "continue") return leave(name);
    refuse_block(name);
  }

  [[noreturn]] static void refuse_block(const Token& name) {
    const bool is_end = name.value.starts_with("end") || name.value == "else" || name.value == "elif";
    const std::string block = fmt::format("{{% {} %}}", name.value);
    fail_at(name.line, is_end ? "unexpected " + block : "the block " + block + " is not supported");
  }

  void end_block() { tokens_.expect(Token::end_block, ""); }

  // {% name %} behind a body.
  void expect_block(std::string_view name) {
    tokens_.expect(Token::begin_block, "");
    tokens_.expect(Token::name, name);
  }

  std::unique_ptr<Statement> if_block() {
    auto node = std::make_unique<If>();
    do {
      ExpressionPtr condition = expressions_.tuple(/*may_be_conditional=*/false);
      end_block();
      node->branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
      tokens_.expect(Token::begin_block, "");
    } while (tokens_.skip_name("elif"));
    if (tokens_.skip_name("else")) {
      end_block();
      node->otherwise = body({"endif"});
      tokens_.expect(Token::begin_block, "");
    }
    tokens_.expect(Token::name, "endif");
    end_block();
    return node;
  }

  std::unique_ptr<Statement> for_block() {
    auto node = std::make_unique<For>();
    node->target = expressions_.target(/*may_be_attribute=*/false);
    tokens_.expect(Token::name, "in");
    node->sequence = expressions_.tuple(/*may_be_conditional=*/false);
    if (tokens_.skip_name("if")) node->condition = expressions_.expression();
    if (tokens_.is_name("recursive")) fail_at(tokens_.now().line, "a loop that is recursive is not supported");
    end_block();
    ++loops_;
    node->body = body({"else", "endfor"});
    --loops_;
    tokens_.expect(Token::begin_block, "");
    if (tokens_.skip_name("else")) {
      end_block();
      node->otherwise = body({"endfor"});
      tokens_.expect(Token::begin_block, "");
    }
    tokens_.expect(Token::name, "endfor");
    end_block();
    return node;
  }

  std::unique_ptr<Statement> set_block() {
    auto node = std::make_unique<Set>();
    node->target = expressions_.target(/*may_be_attribute=*/true);
    if (tokens_.skip_sign("=")) {
      node->what = expressions_.tuple();
      end_block();
      return node;
    }
    while (tokens_.skip_sign("|")) node->filters.push_back(expressions_.filter());
    end_block();
    const int loops = std::exchange(loops_, 0);
    node->body = body({"endset"});
    loops_ = loops;
    expect_block("endset");
    end_block();
    return node;
  }

  std::unique_ptr<Statement> macro() {
    auto node = std::make_unique<Macro>();
    node->name = tokens_.take_name();
    tokens_.expect(Token::sign, "(");
    while (!tokens_.is_sign(")")) {
      std::string parameter = tokens_.take_name();
      ExpressionPtr otherwise = tokens_.skip_sign("=") ? expressions_.expression() : nullptr;
      if (!otherwise && !node->parameters.empty() && node->parameters.back().second)
        fail_at(tokens_.now().line, fmt::format("the parameter '{}' has no default, and one before it has", parameter));
      node->parameters.emplace_back(std::move(parameter), std::move(otherwise));
      if (!tokens_.skip_sign(",")) break;
    }
    tokens_.expect(Token::sign, ")");
    end_block();
    const int loops = std::exchange(loops_, 0);
    node->body = body({"endmacro"});
    loops_ = loops;
    expect_block("endmacro");
    end_block();
    return node;
  }

  std::unique_ptr<Statement> generation() {
    auto node = std::make_unique<Generation>();
    end_block();
    const int loops = std::exchange(loops_, 0);
    node->body = body({"endgeneration"});
    loops_ = loops;
    expect_block("endgeneration");
    end_block();
    return node;
  }

  std::unique_ptr<Statement> leave(const Token& name) {
    if (loops_ == 0) fail_at(name.line, fmt::format("{{% {} %}} is outside a loop", name.value));
    end_block();
    return std::make_unique<Leave>(name.value == "break" ? Flow::leaves_loop : Flow::next_round);
  }

  Tokens tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around what is being read
};

}  // namespace

Statements parse(std::string_view source) { return StatementParser(source).read(); }

}  // namespace gpt::jinja
