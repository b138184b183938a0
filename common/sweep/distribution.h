// Defines what a sweep may choose for one field of the spec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::sweep {

// The values that one parameter may take. Values are JSON: numbers in their shortest form that
// reads back the same. Numbers of a continuous scale are rounded to 12 digits, so that they read
// well and do not depend on the last bits of a mathematics library; only scales that are narrower
// than a millionth of their bounds keep all digits.
class Distribution {
 public:
  // Reads log(1e-4, 1), uniform(0, 0.5), int(2, 8), log_int(16, 512), each with an optional third
  // number of grid points, choice(relu, gelu) or a JSON list. Returns INVALID_ARGUMENT, saying what
  // is wrong and what was expected.
  static absl::StatusOr<Distribution> Parse(absl::string_view text);

  // Returns the value at the quantile `u` in [0, 1), as JSON.
  std::string At(double u) const;
  // Returns the number of points in a grid; 0 if the text does not say it.
  int64_t grid_size() const;
  // Returns the i-th point of a grid, as JSON; they are evenly spaced on the distribution's own
  // scale, with both ends among them. A single point is the middle. Integers are all different.
  std::string GridPoint(int64_t i) const;
  // Returns a neighbour of `value` for population based training: a number times 1.2 or 1/1.2 (on a
  // bounded scale, cut to its bounds; integers change by at least 1), an element of a list one
  // place up or down, which stays at the ends. `up` chooses the larger or the later one.
  std::string Neighbour(absl::string_view value, bool up) const;
  // Returns where `value` is between the smallest and the largest one, in [0, 1] on the
  // distribution's own scale: the place of a line in a parallel-coordinates plot. A list is spaced
  // evenly in its order.
  double PlaceOf(absl::string_view value) const;

  // Returns the number of values that there are; 0 if the scale is continuous.
  int64_t distinct() const;
  // Returns the i-th of the distinct() values, in their order.
  std::string Distinct(int64_t i) const;
  // Returns the probability of the i-th of the distinct() values, times a constant.
  double Weight(int64_t i) const;

 private:
  enum class Kind { kUniform, kLog, kInt, kLogInt, kChoice };

  static absl::StatusOr<Distribution> ParseChoices(absl::string_view text,
                                                   std::vector<std::string> choices);
  static absl::StatusOr<Distribution> ParseScale(absl::string_view text, Kind kind,
                                                 const std::vector<absl::string_view>& arguments);
  bool is_log() const { return kind_ == Kind::kLog || kind_ == Kind::kLogInt; }
  bool is_whole() const { return kind_ == Kind::kInt || kind_ == Kind::kLogInt; }
  // Returns the number between `from` and `to`, on the scale.
  double Between(double from, double to, double u) const;
  // Returns a number of a continuous scale, rounded and within the bounds, as JSON.
  std::string ContinuousText(double value) const;
  // Returns the place of a value among the choices; -1 if it is none of them.
  int64_t ChoiceOf(absl::string_view value) const;

  Kind kind_ = Kind::kUniform;
  double low_ = 0;
  double high_ = 0;
  int64_t points_ = 0;
  std::vector<std::string> choices_;  // JSON
};

}  // namespace trainyard::sweep
