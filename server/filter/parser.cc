// Descends by the grammar in expression.h.
#include "server/filter/parser.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/filter/tokens.h"

namespace trainyard::filter {
namespace {

std::optional<Operator> OperatorOf(absl::string_view text) {
  constexpr std::pair<absl::string_view, Operator> kOperators[] = {
      {"=", Operator::kEqual},      {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual},
      {"~", Operator::kContains}};
  for (const auto& [known, comparison] : kOperators) {
    if (known == text) return comparison;
  }
  return std::nullopt;
}

bool HasOrder(Kind kind) {
  return kind != Kind::kText && kind != Kind::kWord && kind != Kind::kTexts;
}

bool IsSearched(Kind kind) {
  return !HasOrder(kind) || kind == Kind::kAny;
}

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TypeOf& type_of)
      : tokens_(std::move(tokens)), type_of_(type_of) {}

  absl::StatusOr<Node> Parse() {
    TY_ASSIGN_OR_RETURN(Node node, Any());
    if (now().kind != TokenKind::kEnd) return Unexpected(now(), "and, or, or the end");
    return node;
  }

 private:
  const Token& now() const { return tokens_[at_]; }

  // A chain of one keyword is one node, so the depth of a tree is that of its parentheses.
  template <typename Part>
  absl::StatusOr<Node> Chain(absl::string_view keyword, Node::Role role, Part part) {
    TY_ASSIGN_OR_RETURN(Node first, part());
    if (!IsKeyword(now(), keyword)) return first;
    Node chain;
    chain.role = role;
    chain.parts.push_back(std::move(first));
    while (IsKeyword(now(), keyword)) {
      ++at_;
      TY_ASSIGN_OR_RETURN(Node next, part());
      chain.parts.push_back(std::move(next));
    }
    return chain;
  }

  absl::StatusOr<Node> Any() {
    return Chain("or", Node::Role::kOr, [this] { return All(); });
  }
  absl::StatusOr<Node> All() {
    return Chain("and", Node::Role::kAnd, [this] { return Negation(); });
  }

  absl::StatusOr<Node> Negation() {
    const bool is_not = IsKeyword(now(), "not");
    if (!is_not && now().kind != TokenKind::kOpen) return Comparison();
    if (depth_ == kDepthMax) {
      return Unexpected(
          now(), absl::StrCat("at most ", kDepthMax, " parentheses and nots in one another"));
    }
    ++depth_;
    ++at_;
    Node node;
    if (is_not) {
      node.role = Node::Role::kNot;
      TY_ASSIGN_OR_RETURN(Node part, Negation());
      node.parts.push_back(std::move(part));
    } else {
      TY_ASSIGN_OR_RETURN(node, Any());
      if (now().kind != TokenKind::kClose) return Unexpected(now(), "and, or, or ')'");
      ++at_;
    }
    --depth_;
    return node;
  }

  absl::StatusOr<Node> Comparison() {
    const Token field = now();
    if (field.kind != TokenKind::kWord || IsKeyword(field, "and") || IsKeyword(field, "or")) {
      return Unexpected(field, "a field, such as state or test.accuracy, not or '('");
    }
    const auto type = type_of_(field.text);
    if (!type.ok()) return Unexpected(field, type.status().message());
    ++at_;
    Node node;
    node.field = field.text;
    node.kind = type->kind;
    if (now().kind != TokenKind::kOperator) {
      if (now().kind == TokenKind::kWord && !IsKeyword(now(), "and") && !IsKeyword(now(), "or")) {
        return Unexpected(now(), "=, !=, <, <=, >, >=, ~, and, or, or the end");
      }
      return node;
    }
    node.role = Node::Role::kCompare;
    const auto comparison = OperatorOf(now().text);
    if (!comparison.has_value()) return Unexpected(now(), "=, !=, <, <=, >, >= or ~");
    node.comparison = *comparison;
    const bool is_search = node.comparison == Operator::kContains;
    const bool is_order =
        !is_search && node.comparison != Operator::kEqual && node.comparison != Operator::kNotEqual;
    if (is_order && !HasOrder(node.kind)) {
      return Unexpected(now(), absl::StrCat("=, != or ~, since '", node.field, "' has no order"));
    }
    if (is_search && !IsSearched(node.kind)) {
      return Unexpected(now(),
                        absl::StrCat("=, !=, <, <=, > or >=, since '", node.field, "' is no text"));
    }
    ++at_;
    if (now().kind != TokenKind::kWord && now().kind != TokenKind::kQuoted) {
      return Unexpected(now(), "a value: a number, a word, or a text in quotes");
    }
    if (is_search) {
      node.literal.text = now().text;  // a part of a word is none of those that there are
    } else {
      TY_ASSIGN_OR_RETURN(node.literal, ReadLiteral(now(), node.field, *type));
    }
    ++at_;
    return node;
  }

  const std::vector<Token> tokens_;
  const TypeOf& type_of_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<Node> ParseTree(absl::string_view text, const TypeOf& type_of) {
  if (text.size() > kExpressionBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", text.size(), " bytes; expected at most ", kExpressionBytesMax));
  }
  TY_ASSIGN_OR_RETURN(std::vector<Token> tokens, Split(text));
  return Parser(std::move(tokens), type_of).Parse();
}

}  // namespace trainyard::filter
