// Text for people and for JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonQuote(absl::string_view text);

// Returns true if `text` is well-formed UTF-8 (RFC 3629).
bool IsUtf8(absl::string_view text);

// The Levenshtein distance between two words.
size_t EditDistance(absl::string_view a, absl::string_view b);

// The candidate nearest to `word`, or empty where none is near enough to be meant (distance over a
// third of the word's length, at least 2).
std::string NearestWord(absl::string_view word, const std::vector<std::string>& candidates);

// The two halves of "1.5 GiB" and "30min": decimal digits with their point, and what follows
// without its spaces. Either may be empty; they point into `text`.
struct Quantity {
  absl::string_view number;
  absl::string_view unit;
};
Quantity SplitQuantity(absl::string_view text);

// "1.5 GiB", "12 KiB", "7 B".
std::string FormatBytes(int64_t bytes);
// "1,234,567".
std::string FormatCount(int64_t count);

}  // namespace trainyard
