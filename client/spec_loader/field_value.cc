// YAML has one kind of scalar and JSON has several. The type of the field decides which one was
// meant.
#include "client/spec_loader/field_value.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec_loader {
namespace {

using google::protobuf::FieldDescriptor;

// Longer values are cut in messages.
constexpr size_t kQuoteBytesMax = 60;

absl::Status Expected(absl::string_view what, const YamlNode& node) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found ", Found(node)));
}

bool IsDecimal(absl::string_view text) {
  if (absl::StartsWith(text, "-") || absl::StartsWith(text, "+")) text.remove_prefix(1);
  bool has_digit = false;
  size_t i = 0;
  const auto digits = [&] {
    while (i < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[i]))) {
      has_digit = true;
      ++i;
    }
  };
  digits();
  if (i < text.size() && text[i] == '.') ++i;
  digits();
  if (!has_digit) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    has_digit = false;
    digits();
    if (!has_digit) return false;
  }
  return i == text.size();
}

// Reads whole numbers, including those written as 1e6.
template <typename T>
absl::StatusOr<std::string> WholeJson(const YamlNode& node) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  const std::string what = kMin < 0 ? "a whole number" : "a whole number, 0 or more";
  if (node.kind != YamlNode::Kind::kScalar || node.is_quoted || !IsDecimal(node.text)) {
    return Expected(what, node);
  }
  absl::string_view text = node.text;
  if (absl::StartsWith(text, "+")) text.remove_prefix(1);
  T value = 0;
  if (absl::SimpleAtoi(text, &value)) return absl::StrCat(value);
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || std::trunc(number) != number) {
    return Expected(what, node);
  }
  // A double holds integers exactly up to 2^53.
  const bool is_integer = text.find_first_of(".eE") == absl::string_view::npos;
  if (!is_integer && std::abs(number) <= 9007199254740992.0 &&
      number >= static_cast<double>(kMin) && number <= static_cast<double>(kMax)) {
    return absl::StrCat(static_cast<T>(number));
  }
  if (kMin == 0 && number < 0) return Expected(what, node);
  return absl::InvalidArgumentError(absl::StrCat(
      "the number ", text, " is out of range; expected a whole number from ", kMin, " to ", kMax));
}

absl::StatusOr<std::string> NumberJson(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.is_quoted || !IsDecimal(node.text)) {
    return Expected("a number", node);
  }
  absl::string_view text = node.text;
  if (absl::StartsWith(text, "+")) text.remove_prefix(1);
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number ", text, " is out of range of a double"));
  }
  // JSON allows neither ".5" nor "5.".
  std::string json(text);
  const size_t digit = absl::StartsWith(json, "-") ? 1 : 0;
  if (json[digit] == '.') json.insert(digit, "0");
  const size_t dot = json.find('.');
  if (dot != std::string::npos &&
      (dot + 1 == json.size() || !absl::ascii_isdigit(static_cast<unsigned char>(json[dot + 1])))) {
    json.insert(dot + 1, "0");
  }
  // JSON allows no leading zeros.
  while (json.size() > digit + 1 && json[digit] == '0' &&
         absl::ascii_isdigit(static_cast<unsigned char>(json[digit + 1]))) {
    json.erase(digit, 1);
  }
  return json;
}

}  // namespace

std::string Found(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a mapping";
    case YamlNode::Kind::kScalar:
      break;
  }
  const std::string quotes = node.is_quoted ? "text " : "";
  if (node.text.size() <= kQuoteBytesMax) return absl::StrCat(quotes, "'", node.text, "'");
  return absl::StrCat(quotes, "'", node.text.substr(0, kQuoteBytesMax), "...'");
}

absl::StatusOr<std::string> ScalarJson(const FieldDescriptor& field, const YamlNode& node) {
  const bool is_scalar = node.kind == YamlNode::Kind::kScalar;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return WholeJson<int32_t>(node);
    case FieldDescriptor::CPPTYPE_INT64:
      return WholeJson<int64_t>(node);
    case FieldDescriptor::CPPTYPE_UINT32:
      return WholeJson<uint32_t>(node);
    case FieldDescriptor::CPPTYPE_UINT64:
      return WholeJson<uint64_t>(node);
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberJson(node);
    case FieldDescriptor::CPPTYPE_BOOL:
      if (is_scalar && !node.is_quoted) {
        const std::string text = absl::AsciiStrToLower(node.text);
        if (text == "true" || text == "false") return text;
      }
      return Expected("true or false", node);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const std::vector<std::string> texts = spec::EnumTexts(*field.enum_type());
      if (!is_scalar) return Expected(absl::StrCat("a word such as ", texts.front()), node);
      return JsonQuote(node.text);
    }
    case FieldDescriptor::CPPTYPE_STRING:
      if (!is_scalar) return Expected("text", node);
      return JsonQuote(node.text);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  // These are intervals and durations. Other messages have fields and never come here.
  const bool is_interval = field.message_type() == v1::Interval::descriptor();
  if (!is_scalar && field.message_type() == v1::ByteSize::descriptor()) {
    return Expected("an amount of memory such as '80 GiB'", node);
  }
  if (!is_scalar) {
    return Expected(is_interval ? "an interval such as '1 epoch', '500 steps' or '10 min'"
                                : "a duration such as '10 min'",
                    node);
  }
  return JsonQuote(node.text);
}

}  // namespace trainyard::spec_loader
