// Reads the values that fields are compared with, by the kind of the field.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/filter/fields.h"
#include "server/filter/tokens.h"

namespace trainyard::filter {

// A value of an expression. A day or a minute is a range: [number, end).
struct Literal {
  std::string text;
  std::optional<double> number;
  double end = 0;
};

// Returns INVALID_ARGUMENT with what was expected in place of the token.
absl::StatusOr<Literal> ReadLiteral(const Token& token, const std::string& field,
                                    const FieldType& type);

// Returns the number that a text is, if it is one: "0.9", "1e-3", "90%".
std::optional<double> NumberOf(absl::string_view text);

}  // namespace trainyard::filter
