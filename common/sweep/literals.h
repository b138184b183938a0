// Reads and writes the values of parameters as JSON. Each value has one text, so that equal values
// are equal texts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::sweep {

// Returns the shortest text that reads back as `value`, which must be finite. Whole numbers below
// 2^53 have neither a point nor an exponent.
std::string NumberText(double value);

// Returns the value that a literal means, as JSON: relu is "relu", .5 is 0.5 and True is true.
// Lists and objects may be nested 16 levels deep. Returns INVALID_ARGUMENT, saying what is wrong
// with it.
absl::StatusOr<std::string> ValueOf(absl::string_view literal);

// Splits a text at the commas that stand outside of texts, lists and objects, and removes the
// spaces around each part. A text of nothing but spaces has no parts.
std::vector<absl::string_view> SplitArguments(absl::string_view text);

// Returns `text` in single quotes for a message. Long texts are cut.
std::string Shown(absl::string_view text);

}  // namespace trainyard::sweep
