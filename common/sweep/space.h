// Reads the space of values that a sweep searches, and picks values from it. All picks are
// functions of their arguments alone, so that a trial has the same values wherever it is computed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/sweep/distribution.h"

namespace trainyard::sweep {

// The most points of a grid; larger ones are refused.
inline constexpr int64_t kGridPointsMax = 10'000;

// The value of each parameter as JSON, by its path in the spec.
using Values = std::map<std::string, std::string>;

// The space: a distribution for each path.
class Space {
 public:
  // A parameter with a mistake: its path, and the message.
  using Mistake = std::pair<std::string, std::string>;

  // Reads the texts by path. If there are mistakes, they are added to `mistakes`, and the space has
  // the other parameters alone.
  static Space Parse(const std::map<std::string, std::string>& parameters,
                     std::vector<Mistake>& mistakes);

  // Returns the number of points of the grid: 0 if a parameter does not say how many it has, and
  // kGridPointsMax + 1 if they are more than kGridPointsMax.
  int64_t grid_size() const;
  // Returns a point of the grid. The last parameter in order of paths changes fastest.
  Values GridPoint(int64_t i) const;
  // Returns the number of points that the space has at all: 0 if a parameter is continuous, and
  // kGridPointsMax + 1 if they are more than kGridPointsMax.
  int64_t distinct() const;
  // Draws the values of trial `trial`: a function of the seed, of the trial and of each path. If
  // distinct() is from 1 to kGridPointsMax, the first distinct() trials are all different, and
  // trial distinct() has the values of trial 0 again. What is more probable tends to come earlier.
  // Then a draw takes time in proportion to the number of points.
  Values Draw(uint64_t seed, int64_t trial) const;
  // Changes the values of a trial for population based training (Jaderberg et al. 2017): each
  // parameter is drawn anew with a probability of 1/4, and else takes a neighbouring value.
  Values Explore(const Values& values, uint64_t seed, int64_t trial, int64_t generation) const;

  const std::map<std::string, Distribution>& parameters() const { return parameters_; }

 private:
  // Returns the number of the point that is the `trial`-th in an order drawn by the seed. There are
  // `points` of them, numbered like those of a grid.
  int64_t DrawnPoint(uint64_t seed, int64_t trial, int64_t points) const;

  std::map<std::string, Distribution> parameters_;
};

}  // namespace trainyard::sweep
