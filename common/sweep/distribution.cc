// Reads distributions and picks their values. Integers of a logarithmic scale are rounded from it,
// with half a step more at both ends, as Optuna does: so the ends are as probable as their
// neighbours.
#include "common/sweep/distribution.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"
#include "common/sweep/literals.h"

namespace trainyard::sweep {
namespace {

constexpr int64_t kPointsMax = 1000;
constexpr size_t kChoicesMax = 1000;
constexpr double kIntegerMax = 9007199254740992;  // 2^53: beyond it, not all integers are doubles
constexpr int kDigits = 12;
constexpr double kNarrow = 1e-6;  // narrower scales are not rounded
constexpr double kStep = 1.2;     // Jaderberg et al. 2017, appendix A.1
constexpr char kForms[] =
    "log(LOW, HIGH), uniform(LOW, HIGH), int(LOW, HIGH), log_int(LOW, HIGH), choice(A, B, ...) or "
    "a list";

template <typename... Parts>
absl::Status Mistake(absl::string_view text, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(Shown(text), parts...));
}

double Rounded(double value) {
  char text[32];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific, kDigits - 1);
  double rounded = value;
  std::from_chars(text, end.ptr, rounded);
  return rounded;
}

// Returns 1 part of `parts` for `i` = 1, and the middle if there is one point alone.
double ShareOf(int64_t i, int64_t points) {
  if (points < 2) return 0.5;
  return static_cast<double>(i) / static_cast<double>(points - 1);
}

}  // namespace

absl::StatusOr<Distribution> Distribution::Parse(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return Mistake(text, " is empty; expected ", kForms);
  if (text.front() == '[') {
    if (text.back() != ']') return Mistake(text, " lacks its last ']'");
    std::vector<std::string> choices;
    for (const absl::string_view argument : SplitArguments(text.substr(1, text.size() - 2))) {
      choices.emplace_back(argument);
    }
    return ParseChoices(text, std::move(choices));
  }
  const size_t open = text.find('(');
  if (open == absl::string_view::npos) {
    return Mistake(text, " is one value; expected ", kForms);
  }
  if (text.back() != ')') return Mistake(text, " does not end with ')'; expected ", kForms);
  const absl::string_view name = absl::StripAsciiWhitespace(text.substr(0, open));
  const std::vector<absl::string_view> arguments =
      SplitArguments(text.substr(open + 1, text.size() - open - 2));
  if (name == "choice") return ParseChoices(text, {arguments.begin(), arguments.end()});
  static const auto* kinds =
      new std::map<std::string, Kind, std::less<>>{{"uniform", Kind::kUniform},
                                                   {"log", Kind::kLog},
                                                   {"int", Kind::kInt},
                                                   {"log_int", Kind::kLogInt}};
  const auto kind = kinds->find(name);
  if (kind != kinds->end()) return ParseScale(text, kind->second, arguments);
  const std::string nearest = NearestWord(name, {"log", "uniform", "int", "log_int", "choice"});
  if (nearest.empty()) {
    return Mistake(text, " begins with no known distribution; expected ", kForms);
  }
  return Mistake(text, " begins with no known distribution; did you mean '", nearest, "'?");
}

absl::StatusOr<Distribution> Distribution::ParseChoices(absl::string_view text,
                                                        std::vector<std::string> choices) {
  if (choices.empty() || choices.size() > kChoicesMax) {
    return Mistake(text, " has ", choices.size(), " values; expected 1 to ", kChoicesMax);
  }
  Distribution distribution;
  distribution.kind_ = Kind::kChoice;
  std::set<std::string> known;
  for (const std::string& literal : choices) {
    if (literal.empty()) return Mistake(text, " has nothing between two commas; expected a value");
    absl::StatusOr<std::string> value = ValueOf(literal);
    if (!value.ok()) return value.status();
    if (!known.insert(*value).second) {
      return Mistake(text, " has ", *value, " twice; expected different values");
    }
    distribution.choices_.push_back(*std::move(value));
  }
  return distribution;
}

absl::StatusOr<Distribution> Distribution::ParseScale(
    absl::string_view text, Kind kind, const std::vector<absl::string_view>& arguments) {
  if (arguments.size() < 2 || arguments.size() > 3) {
    return Mistake(text, " has ", arguments.size(),
                   arguments.size() == 1 ? " argument" : " arguments",
                   "; expected LOW and HIGH, and for a grid its number of points");
  }
  double numbers[3] = {0, 0, 0};
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!absl::SimpleAtod(arguments[i], &numbers[i]) || !std::isfinite(numbers[i])) {
      return Mistake(text, " has ", Shown(arguments[i]), "; expected a number");
    }
  }
  Distribution distribution;
  distribution.kind_ = kind;
  const double low = distribution.low_ = numbers[0] + 0.0;  // which makes -0 a 0
  const double high = distribution.high_ = numbers[1] + 0.0;
  if (distribution.is_whole()) {
    for (const double bound : {low, high}) {
      if (bound != std::trunc(bound) || std::abs(bound) > kIntegerMax) {
        return Mistake(text, " has the bound ", NumberText(bound),
                       "; expected an integer from -2^53 to 2^53");
      }
    }
  }
  if (distribution.is_log() && low <= 0) {
    return Mistake(text, " begins at ", NumberText(low), "; expected a number above 0");
  }
  if (low >= high) {
    return Mistake(text, " goes from ", NumberText(low), " to ", NumberText(high),
                   "; expected LOW below HIGH");
  }
  if (arguments.size() < 3) return distribution;
  const double points = numbers[2];
  if (points != std::trunc(points) || points < 1 || points > kPointsMax) {
    return Mistake(text, " has ", arguments[2], " grid points; expected 1 to ", kPointsMax);
  }
  if (distribution.is_whole() && points > high - low + 1) {
    return Mistake(text, " has ", arguments[2], " grid points; expected at most ",
                   NumberText(high - low + 1), ", the number of its integers");
  }
  distribution.points_ = static_cast<int64_t>(points);
  return distribution;
}

double Distribution::Between(double from, double to, double u) const {
  if (is_log()) return std::exp(std::log(from) * (1 - u) + std::log(to) * u);
  return from * (1 - u) + to * u;
}

std::string Distribution::ContinuousText(double value) const {
  const bool is_narrow = high_ - low_ < kNarrow * std::max(std::abs(low_), std::abs(high_));
  return NumberText(std::clamp(is_narrow ? value : Rounded(value), low_, high_));
}

std::string Distribution::At(double u) const {
  u = u > 0 ? std::min(u, std::nextafter(1.0, 0.0)) : 0;  // also if it is no number
  switch (kind_) {
    case Kind::kUniform:
    case Kind::kLog:
      return ContinuousText(Between(low_, high_, u));
    case Kind::kInt:
      return NumberText(std::min(low_ + std::floor(u * (high_ - low_ + 1)), high_));
    case Kind::kLogInt:
      return NumberText(std::clamp(std::round(Between(low_ - 0.5, high_ + 0.5, u)), low_, high_));
    case Kind::kChoice:
      break;
  }
  return choices_[static_cast<size_t>(u * static_cast<double>(choices_.size()))];
}

int64_t Distribution::grid_size() const {
  return kind_ == Kind::kChoice ? static_cast<int64_t>(choices_.size()) : points_;
}

std::string Distribution::GridPoint(int64_t i) const {
  if (kind_ == Kind::kChoice) return choices_[static_cast<size_t>(i)];
  const double value = Between(low_, high_, ShareOf(i, points_));
  if (!is_whole()) return ContinuousText(value);
  // The scale bends upwards, if at all. Where its points are closer than the integers, which is at
  // its beginning, they are the first integers.
  const double first = points_ < 2 ? low_ : low_ + static_cast<double>(i);
  return NumberText(std::clamp(std::round(value), first, high_));
}

std::string Distribution::Neighbour(absl::string_view value, bool up) const {
  if (kind_ == Kind::kChoice) {
    const int64_t last = static_cast<int64_t>(choices_.size()) - 1;
    const int64_t place = std::clamp<int64_t>(ChoiceOf(value) + (up ? 1 : -1), 0, last);
    return choices_[static_cast<size_t>(place)];
  }
  double number = 0;
  if (!absl::SimpleAtod(value, &number) || std::isnan(number)) return At(0.5);
  const double neighbour = up == (number > 0) ? number * kStep : number / kStep;
  if (!is_whole()) return ContinuousText(neighbour);
  const double rounded = std::round(neighbour);
  return NumberText(
      std::clamp(up ? std::max(rounded, number + 1) : std::min(rounded, number - 1), low_, high_));
}

double Distribution::PlaceOf(absl::string_view value) const {
  if (kind_ == Kind::kChoice) {
    const int64_t place = std::max<int64_t>(ChoiceOf(value), 0);
    return place == 0 ? 0 : ShareOf(place, static_cast<int64_t>(choices_.size()));
  }
  double number = 0;
  if (!absl::SimpleAtod(value, &number) || std::isnan(number)) return 0;
  number = std::clamp(number, low_, high_);
  if (is_log()) return (std::log(number) - std::log(low_)) / (std::log(high_) - std::log(low_));
  return (number / 2 - low_ / 2) / (high_ / 2 - low_ / 2);  // the whole difference may be infinite
}

int64_t Distribution::distinct() const {
  if (kind_ == Kind::kChoice) return static_cast<int64_t>(choices_.size());
  return is_whole() ? static_cast<int64_t>(high_ - low_) + 1 : 0;
}

std::string Distribution::Distinct(int64_t i) const {
  if (kind_ == Kind::kChoice) return choices_[static_cast<size_t>(i)];
  return NumberText(low_ + static_cast<double>(i));
}

double Distribution::Weight(int64_t i) const {
  if (kind_ != Kind::kLogInt) return 1;
  const double value = low_ + static_cast<double>(i);
  return std::log((value + 0.5) / (value - 0.5));
}

int64_t Distribution::ChoiceOf(absl::string_view value) const {
  const absl::StatusOr<std::string> text = ValueOf(value);
  const auto found = std::find(choices_.begin(), choices_.end(), text.ok() ? *text : "");
  return found == choices_.end() ? -1 : found - choices_.begin();
}

}  // namespace trainyard::sweep
