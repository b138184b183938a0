// Evaluates trees, and orders values.
#include "server/filter/expression.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/filter/literal.h"
#include "server/filter/parser.h"
#include "server/filter/tokens.h"

namespace trainyard::filter {
namespace {

bool CompareNumbers(Operator comparison, double value, const Literal& literal) {
  const double begin = *literal.number;
  const double end = literal.end;
  // A number is a range of one, and a day holds all of its seconds.
  const bool is_in = end > begin ? value >= begin && value < end : value == begin;
  switch (comparison) {
    case Operator::kEqual:
      return is_in;
    case Operator::kNotEqual:
      return !is_in;
    case Operator::kLess:
      return value < begin;
    case Operator::kLessEqual:
      return value < begin || is_in;
    case Operator::kGreater:
      return value > begin && !is_in;
    case Operator::kGreaterEqual:
      return value >= begin;
    case Operator::kContains:
      break;
  }
  return false;
}

bool Contains(absl::string_view text, absl::string_view part) {
  return absl::StrContains(absl::AsciiStrToLower(text), absl::AsciiStrToLower(part));
}

bool CompareTexts(const Node& node, const std::string& text) {
  const std::string value = node.kind == Kind::kWord ? absl::AsciiStrToLower(text) : text;
  switch (node.comparison) {
    case Operator::kEqual:
      return value == node.literal.text;
    case Operator::kNotEqual:
      return value != node.literal.text;
    case Operator::kContains:
      return Contains(value, node.literal.text);
    default:
      return false;
  }
}

// One of several texts that is equal, or has the part, is enough, and != says that none is equal.
bool CompareList(const Node& node, const std::vector<std::string>& texts) {
  const bool is_not = node.comparison == Operator::kNotEqual;
  const bool has_one = std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
    return node.comparison == Operator::kContains ? Contains(text, node.literal.text)
                                                  : text == node.literal.text;
  });
  return has_one != is_not;
}

bool Compare(const Node& node, const Value& value) {
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    return CompareList(node, *texts);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    // A parameter that is a number is not equal to a word.
    if (!node.literal.number.has_value()) return node.comparison == Operator::kNotEqual;
    return CompareNumbers(node.comparison, *number, node.literal);
  }
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return false;
  if (node.kind == Kind::kAny && node.comparison != Operator::kContains) {
    const std::optional<double> number = NumberOf(*text);
    if (number.has_value() && node.literal.number.has_value()) {
      return CompareNumbers(node.comparison, *number, node.literal);
    }
  }
  return CompareTexts(node, *text);
}

bool IsThere(const Value& value) {
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return !texts->empty();
  if (const auto* text = std::get_if<std::string>(&value)) return !text->empty();
  return std::holds_alternative<double>(value);
}

bool HoldsFor(const Node& node, const ValueOf& value_of) {
  const auto holds = [&value_of](const Node& part) { return HoldsFor(part, value_of); };
  switch (node.role) {
    case Node::Role::kAnd:
      return std::all_of(node.parts.begin(), node.parts.end(), holds);
    case Node::Role::kOr:
      return std::any_of(node.parts.begin(), node.parts.end(), holds);
    case Node::Role::kNot:
      return !holds(node.parts.front());
    case Node::Role::kThere:
      return IsThere(value_of(node.field));
    case Node::Role::kCompare:
      return Compare(node, value_of(node.field));
  }
  return false;
}

}  // namespace

absl::StatusOr<Expression> Expression::Parse(absl::string_view text, const TypeOf& type_of) {
  TY_ASSIGN_OR_RETURN(Node root, ParseTree(text, type_of));
  return Expression(std::make_shared<const Node>(std::move(root)));
}

bool Expression::Holds(const ValueOf& value_of) const {
  return HoldsFor(*root_, value_of);
}

absl::StatusOr<Order> ParseOrder(absl::string_view text, const TypeOf& type_of) {
  if (text.size() > kExpressionBytesMax) {
    return absl::InvalidArgumentError("is too long; expected a field");
  }
  TY_ASSIGN_OR_RETURN(const std::vector<Token> tokens, Split(text));
  const Token& field = tokens.front();
  if (field.kind != TokenKind::kWord) return Unexpected(field, "a field, such as test.accuracy");
  const auto type = type_of(field.text);
  if (!type.ok()) return Unexpected(field, type.status().message());
  if (type->kind == Kind::kTexts) return Unexpected(field, "a field with one value");
  const bool is_descending = IsKeyword(tokens[1], "desc");
  const Token& last = tokens[is_descending || IsKeyword(tokens[1], "asc") ? 2 : 1];
  if (last.kind != TokenKind::kEnd) return Unexpected(last, "desc, or the end");
  return Order{field.text, is_descending};
}

bool ComesBefore(const Value& left, const Value& right, bool is_descending) {
  const bool has_left = IsThere(left);
  const bool has_right = IsThere(right);
  if (!has_left || !has_right) return has_left && !has_right;
  const auto* left_number = std::get_if<double>(&left);
  const auto* right_number = std::get_if<double>(&right);
  if (left_number != nullptr && right_number != nullptr) {
    const bool left_is_nan = *left_number != *left_number;
    const bool right_is_nan = *right_number != *right_number;
    if (left_is_nan || right_is_nan) return !left_is_nan && right_is_nan;
    return is_descending ? *left_number > *right_number : *left_number < *right_number;
  }
  if (left_number != nullptr || right_number != nullptr) return left_number != nullptr;
  const auto* left_text = std::get_if<std::string>(&left);
  const auto* right_text = std::get_if<std::string>(&right);
  if (left_text == nullptr || right_text == nullptr) return false;
  return is_descending ? *left_text > *right_text : *left_text < *right_text;
}

}  // namespace trainyard::filter
