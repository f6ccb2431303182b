// From the tokens of a template to its tree.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lexer.h"
#include "syntax.h"

namespace gpt::jinja {

// Throws TemplateError.
Statements parse(std::string_view source);

// Where the parser is among the tokens, and how deep.
class Tokens {
 public:
  explicit Tokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_name(std::string_view name) const { return now().is(Token::name, name); }
  bool is_sign(std::string_view sign) const { return now().is(Token::sign, sign); }
  bool skip_name(std::string_view name) { return is_name(name) && (++at_, true); }
  bool skip_sign(std::string_view sign) { return is_sign(sign) && (++at_, true); }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  std::string take_name();
  void expect(Token::Kind kind, std::string_view value);
  [[noreturn]] void refuse() const;  // what comes now

  // While one exists, what is read lies so much deeper: a tree that is too deep would overflow the stack.
  class Depth {
   public:
    explicit Depth(Tokens& tokens) : tokens_(tokens) { more(); }
    ~Depth() { tokens_.depth_ -= levels_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    void more();

   private:
    Tokens& tokens_;
    int levels_ = 0;
  };

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

template <class Node>
std::unique_ptr<Node> node_at(int line) {
  auto node = std::make_unique<Node>();
  node->line = line;
  return node;
}

// Expressions, by their precedence.
class ExpressionParser {
 public:
  explicit ExpressionParser(Tokens& tokens) : tokens_(tokens) {}

  ExpressionPtr expression(bool may_be_conditional = true);
  ExpressionPtr tuple(bool may_be_conditional = true);  // a, b; or one without a comma
  Target target(bool may_be_attribute);
  CallArguments arguments();
  std::unique_ptr<Filtered> filter();  // behind its |

 private:
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr inverted();
  ExpressionPtr comparison();
  ExpressionPtr calculation(int level);
  ExpressionPtr concatenation();
  ExpressionPtr with_sign(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr bracket();
  ExpressionPtr mapping();
  ExpressionPtr postfix(ExpressionPtr of);
  ExpressionPtr dotted(ExpressionPtr of);
  ExpressionPtr subscript(ExpressionPtr of);
  ExpressionPtr filters_of(ExpressionPtr of);
  ExpressionPtr tested(ExpressionPtr of);
  ExpressionPtr called(ExpressionPtr function);

  Tokens& tokens_;
};

}  // namespace gpt::jinja
