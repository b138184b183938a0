// Uses the JSON library to read, and writes numbers itself: the library writes 2 as 2.0 if it was
// computed.
#include "common/sweep/literals.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::sweep {
namespace {

constexpr int kDepthMax = 16;  // the JSON library writes deep values by deep recursion
constexpr size_t kShownBytesMax = 80;
constexpr double kWholeMax = 9007199254740992;  // 2^53: beyond it, not all integers are doubles

// Follows the nesting of a text with literals.
class Nesting {
 public:
  // Takes the next character. Returns true if it stands outside of texts, lists and objects.
  bool Take(char c) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (is_in_text_) {
      is_escaped_ = c == '\\';
      is_in_text_ = c != '"';
    } else if (c == '"') {
      is_in_text_ = true;
    } else if (c == '[' || c == '{') {
      ++depth_;
    } else if (c == ']' || c == '}') {
      --depth_;
    } else {
      return depth_ == 0;
    }
    return false;
  }
  int depth() const { return depth_; }

 private:
  int depth_ = 0;
  bool is_in_text_ = false;
  bool is_escaped_ = false;
};

bool IsTooDeep(absl::string_view text) {
  Nesting nesting;
  for (const char c : text) {
    nesting.Take(c);
    if (nesting.depth() > kDepthMax) return true;
  }
  return false;
}

// Returns true for the characters of decimal numbers. "nan" and "0x10" have others.
bool LooksDecimal(absl::string_view word) {
  return word.find_first_not_of("0123456789+-.eE") == absl::string_view::npos &&
         word.find_first_of("0123456789") != absl::string_view::npos;
}

bool IsWord(absl::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains("_-+./:@%", absl::string_view(&c, 1))) {
      return false;
    }
  }
  return !text.empty();
}

}  // namespace

std::string NumberText(double value) {
  if (value == std::trunc(value) && std::abs(value) <= kWholeMax) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  char text[32];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::general);
  return std::string(text, end.ptr);
}

absl::StatusOr<std::string> ValueOf(absl::string_view literal) {
  if (IsTooDeep(literal)) {
    return absl::InvalidArgumentError(absl::StrCat(
        Shown(literal), " is nested too deeply; expected at most ", kDepthMax, " levels"));
  }
  const nlohmann::json value =
      nlohmann::json::parse(literal.begin(), literal.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_number_float()) return NumberText(value.get<double>());
  const std::string lower = absl::AsciiStrToLower(literal);
  if (value.is_null() || lower == "null") {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(literal),
                     " is no value to search; expected a number, true, false, a text, "
                     "a list or an object"));
  }
  if (!value.is_discarded()) return value.dump();
  if (lower == "true" || lower == "false") return lower;
  if (LooksDecimal(literal)) {
    double number = 0;
    if (absl::SimpleAtod(literal, &number) && std::isfinite(number)) return NumberText(number);
    if (std::isinf(number)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Shown(literal), " is too large; expected a number below 1.8e308"));
    }
  }
  if (IsWord(literal)) return JsonQuote(literal);
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(literal),
                   " is neither JSON nor a word; texts with other characters than letters, digits "
                   "and _-+./:@% stand in double quotes"));
}

std::vector<absl::string_view> SplitArguments(absl::string_view text) {
  std::vector<absl::string_view> parts;
  if (absl::StripAsciiWhitespace(text).empty()) return parts;
  Nesting nesting;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!nesting.Take(text[i]) || text[i] != ',') continue;
    parts.push_back(absl::StripAsciiWhitespace(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  parts.push_back(absl::StripAsciiWhitespace(text.substr(begin)));
  return parts;
}

std::string Shown(absl::string_view text) {
  return absl::StrCat("'", PlainText(std::string(text), kShownBytesMax), "'");
}

}  // namespace trainyard::sweep
