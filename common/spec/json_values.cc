// Tells JSON from texts by parsing it.
#include "common/spec/json_values.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "common/base/strings.h"
#include "common/spec/parse_json.h"

namespace trainyard::spec {
namespace {

bool IsJson(absl::string_view text) {
  return ParseJson(text).has_value();
}

// Returns true for the characters of decimal numbers. "nan" and "0x10" have others.
bool LooksDecimal(absl::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789+-.eE") == absl::string_view::npos &&
         word.find_first_of("0123456789") != absl::string_view::npos;
}

}  // namespace

std::string ValueOfText(absl::string_view text) {
  return IsJson(text) ? JsonQuote(text) : std::string(text);
}

std::string ValueOfWord(absl::string_view word) {
  if (IsJson(word)) return std::string(word);
  const std::string lower = absl::AsciiStrToLower(word);
  if (lower == "true" || lower == "false" || lower == "null") return lower;
  if (word == "~") return "null";
  double number = 0;
  if (LooksDecimal(word) && absl::SimpleAtod(word, &number) && std::isfinite(number)) {
    return nlohmann::json(number).dump();
  }
  return std::string(word);
}

std::string JsonOfValue(absl::string_view value) {
  return IsJson(value) ? std::string(value) : JsonQuote(value);
}

}  // namespace trainyard::spec
