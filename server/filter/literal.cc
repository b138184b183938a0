// Reads numbers, durations, sizes and times.
#include "server/filter/literal.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/duration.h"
#include "common/spec/byte_size.h"

namespace trainyard::filter {
namespace {

double Seconds(absl::Time time) {
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

// A time stands for all of its last unit, so that a day is the whole day.
bool ReadTime(const std::string& text, Literal& literal) {
  struct Form {
    const char* format;
    absl::Duration unit;
  };
  constexpr const char* kZone = "%Ez";
  const Form forms[] = {{"%Y-%m-%d", absl::Hours(24)},
                        {"%Y-%m-%dT%H:%M", absl::Minutes(1)},
                        {"%Y-%m-%d %H:%M", absl::Minutes(1)},
                        {"%Y-%m-%dT%H:%M:%S", absl::Seconds(1)},
                        {"%Y-%m-%d %H:%M:%S", absl::Seconds(1)}};
  for (const Form& form : forms) {
    for (const std::string& zone : {std::string(), std::string(kZone)}) {
      absl::Time time;
      std::string error;
      if (!absl::ParseTime(form.format + zone, text, absl::UTCTimeZone(), &time, &error)) continue;
      if (time == absl::InfiniteFuture() || time == absl::InfinitePast()) continue;
      literal.number = Seconds(time);
      literal.end = Seconds(time + form.unit);
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<double> NumberOf(absl::string_view text) {
  const bool is_percent = absl::ConsumeSuffix(&text, "%");
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) return std::nullopt;
  return is_percent ? number / 100 : number;
}

absl::StatusOr<Literal> ReadLiteral(const Token& token, const std::string& field,
                                    const FieldType& type) {
  Literal literal;
  literal.text = token.text;
  const auto refuse = [&](absl::string_view what) {
    return Unexpected(token, absl::StrCat(what, ", since '", field, "' is one"));
  };
  switch (type.kind) {
    case Kind::kText:
    case Kind::kTexts:
      return literal;
    case Kind::kWord: {
      literal.text = absl::AsciiStrToLower(token.text);
      const auto& words = type.words;
      if (words.empty() || std::find(words.begin(), words.end(), literal.text) != words.end()) {
        return literal;
      }
      return Unexpected(token, absl::StrJoin(words, ", "));
    }
    case Kind::kNumber:
      literal.number = NumberOf(token.text);
      if (!literal.number.has_value()) return refuse("a number such as 0.9");
      break;
    case Kind::kAny:
      literal.number = NumberOf(token.text);
      break;
    case Kind::kDuration: {
      const auto duration = ParseDuration(token.text);
      if (!duration.ok()) return refuse("a duration such as 90s or 2h");
      literal.number = absl::ToDoubleSeconds(*duration);
      break;
    }
    case Kind::kBytes: {
      const auto size = spec::ParseByteSize(token.text);
      if (!size.ok()) return refuse("a size such as 4GiB");
      literal.number = static_cast<double>(size->bytes());
      break;
    }
    case Kind::kTime:
      if (!ReadTime(token.text, literal)) {
        return refuse("a time such as 2026-11-27 or '2026-11-27 10:00' (UTC)");
      }
      return literal;
  }
  literal.end = literal.number.value_or(0);
  return literal;
}

}  // namespace trainyard::filter
