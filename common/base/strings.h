// Formats text for people and for JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonQuote(absl::string_view text);

// Returns true if `text` is well-formed UTF-8 (RFC 3629).
bool IsUtf8(absl::string_view text);

// Makes a text of another program safe to store and to show: returns at most `max_bytes` of it, at
// least 4, with " ..." at the end if some was cut, and with "?" for each control character but
// newlines and tabs, since terminals obey them. No character of UTF-8 is cut in two.
std::string PlainText(std::string text, size_t max_bytes);

// Returns the Levenshtein distance between two words.
size_t EditDistance(absl::string_view a, absl::string_view b);

// Returns the candidate nearest to `word`, or an empty text if none is near enough to be meant (the
// distance may be a third of the word's length, or 2 if that is more).
std::string NearestWord(absl::string_view word, const std::vector<std::string>& candidates);

// The two halves of texts such as "1.5 GiB" and "30min": decimal digits with their point, and the
// rest without leading spaces. Either may be empty. They point into `text`.
struct Quantity {
  absl::string_view number;
  absl::string_view unit;
};
Quantity SplitQuantity(absl::string_view text);

// Returns a size such as "1.5 GiB", "12 KiB" or "7 B".
std::string FormatBytes(int64_t bytes);
// Returns a count such as "1,234,567".
std::string FormatCount(int64_t count);

}  // namespace trainyard
