// Reads one character after the other.
#include "server/filter/tokens.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::filter {
namespace {

// Returns true for what paths, names, numbers, durations and times are made of, and for the bytes
// of other scripts.
bool IsWordByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || absl::ascii_isalnum(byte) ||
         absl::string_view("_./:+-*%@,").find(c) != absl::string_view::npos;
}

bool IsOperatorByte(char c) {
  return absl::string_view("=!<>~").find(c) != absl::string_view::npos;
}

// The token that begins at `at`, which is moved behind it.
absl::StatusOr<Token> Next(absl::string_view text, size_t& at) {
  Token token;
  token.column = at + 1;
  const char first = text[at];
  const size_t begin = at;
  if (first == '(' || first == ')') {
    token.kind = first == '(' ? TokenKind::kOpen : TokenKind::kClose;
    token.text = std::string(1, first);
    ++at;
  } else if (first == '\'' || first == '"') {
    token.kind = TokenKind::kQuoted;
    const size_t end = text.find(first, at + 1);
    if (end == absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "character ", token.column, ": the text in quotes does not end; expected another ",
          std::string(1, first)));
    }
    token.text = std::string(text.substr(at + 1, end - at - 1));
    at = end + 1;
  } else if (IsOperatorByte(first)) {
    token.kind = TokenKind::kOperator;
    ++at;
    if (first != '~' && at < text.size() && text[at] == '=') ++at;
    token.text = std::string(text.substr(begin, at - begin));
    if (token.text == "==") token.text = "=";
    if (token.text == "!") return Unexpected(token, "!=, or the word not");
  } else if (IsWordByte(first)) {
    token.kind = TokenKind::kWord;
    while (at < text.size() && IsWordByte(text[at])) ++at;
    token.text = std::string(text.substr(begin, at - begin));
  } else {
    token.kind = TokenKind::kWord;  // which is not the end
    token.text = std::string(1, first);
    return Unexpected(token, "a field, a value, an operator or a parenthesis");
  }
  return token;
}

}  // namespace

absl::StatusOr<std::vector<Token>> Split(absl::string_view text) {
  std::vector<Token> tokens;
  size_t at = 0;
  while (true) {
    while (at < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[at]))) ++at;
    if (at == text.size()) break;
    auto token = Next(text, at);
    if (!token.ok()) return token.status();
    tokens.push_back(*std::move(token));
  }
  Token end;
  end.column = text.size() + 1;
  tokens.push_back(std::move(end));
  return tokens;
}

absl::Status Unexpected(const Token& found, absl::string_view expected) {
  const std::string what =
      found.kind == TokenKind::kEnd ? "the end" : absl::StrCat("'", PlainText(found.text, 40), "'");
  return absl::InvalidArgumentError(
      absl::StrCat("character ", found.column, ": found ", what, ", expected ", expected));
}

bool IsKeyword(const Token& token, absl::string_view word) {
  return token.kind == TokenKind::kWord && absl::EqualsIgnoreCase(token.text, word);
}

}  // namespace trainyard::filter
