// Converts the values of maps such as program.params. A map in a message holds texts alone, so a
// value is JSON; and a value that is no JSON is a text as it stands, which people need not quote.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::spec {

// Returns the value that means exactly this text: `cosine`, but `"1.10"` with quotes.
std::string ValueOfText(absl::string_view text);

// Returns the value that a word without quotes means in YAML: .5 is the number 0.5, and True is
// true. Whatever is no number, no boolean, no null and no JSON is a text.
std::string ValueOfWord(absl::string_view word);

// Returns the value as JSON: `cosine` becomes `"cosine"`.
std::string JsonOfValue(absl::string_view value);

}  // namespace trainyard::spec
