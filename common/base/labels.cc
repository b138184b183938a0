// Checks the form of labels where they enter, so that no later code has to escape them.
#include "common/base/labels.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard {
namespace {

bool IsKeyStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool IsKey(absl::string_view key) {
  return !key.empty() && key.size() <= kLabelBytesMax && IsKeyStart(key.front()) &&
         std::all_of(key.begin(), key.end(), [](char c) {
           return IsKeyStart(c) || c == '.' || c == '_' || c == '/' || c == '-';
         });
}

bool IsValue(absl::string_view value) {
  return value.size() <= kLabelBytesMax && IsUtf8(value) &&
         std::none_of(value.begin(), value.end(),
                      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::Status CheckLabel(absl::string_view key, absl::string_view value) {
  if (!IsKey(key)) {
    return absl::InvalidArgumentError(
        absl::StrCat(JsonQuote(key.substr(0, kLabelBytesMax + 1)),
                     " is no key of a label; expected 1 to 63 of a-z, 0-9, '.', '_', '/' and '-', "
                     "beginning with a letter or a digit"));
  }
  if (!IsValue(value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("label '", key, "': ", JsonQuote(value.substr(0, kLabelBytesMax + 1)),
                     " is no value; expected at most 63 bytes of printable UTF-8"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::pair<std::string, std::string>> ParseLabel(absl::string_view text) {
  const size_t sign = text.find('=');
  if (sign == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(JsonQuote(text.substr(0, kLabelBytesMax + 1)),
                                                   " is no label; expected key=value"));
  }
  std::pair<std::string, std::string> label(text.substr(0, sign), text.substr(sign + 1));
  const absl::Status status = CheckLabel(label.first, label.second);
  if (!status.ok()) return status;
  return label;
}

}  // namespace trainyard
