// Splits expressions into words, texts in quotes, operators and parentheses.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::filter {

enum class TokenKind { kWord, kQuoted, kOperator, kOpen, kClose, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;   // without quotes
  size_t column = 0;  // of its first byte, from 1
};

// Returns the tokens, of which the last is an end. Returns INVALID_ARGUMENT for a character that
// means nothing, and for a quote that does not end.
absl::StatusOr<std::vector<Token>> Split(absl::string_view text);

// Returns INVALID_ARGUMENT with the place, what stands there, and what was expected.
absl::Status Unexpected(const Token& found, absl::string_view expected);

// Returns true if the token is this word, in any case and without quotes.
bool IsKeyword(const Token& token, absl::string_view word);

}  // namespace trainyard::filter
