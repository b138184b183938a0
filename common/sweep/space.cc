// Draws with a generator that has no state: each number is a hash of what it is for (SplitMix64,
// Steele et al. 2014). Hashes are defined here to the bit, because the trials of old sweeps must
// have the same values for ever.
#include "common/sweep/space.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "absl/strings/string_view.h"

namespace trainyard::sweep {
namespace {

// Numbers for different purposes do not depend on each other.
enum Purpose : uint64_t { kValue = 1, kOrder, kIsRedrawn, kRedrawnValue, kDirection };

constexpr double kRedrawProbability = 0.25;

uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Computes FNV-1a.
uint64_t HashOf(absl::string_view text, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Returns a number in [0, 1) that belongs to the words.
double Uniform(std::initializer_list<uint64_t> words) {
  uint64_t hash = 0;
  for (const uint64_t word : words) hash = Mixed(hash ^ word);
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

// Returns `product` times `size`, or kGridPointsMax + 1 if that is more than kGridPointsMax.
int64_t TimesSize(int64_t product, int64_t size) {
  return size > kGridPointsMax / product ? kGridPointsMax + 1 : product * size;
}

// Returns the number of points if each parameter has `size_of` of them: 0 if one has none.
template <typename SizeOf>
int64_t Product(const std::map<std::string, Distribution>& parameters, const SizeOf& size_of) {
  int64_t product = 1;
  for (const auto& [path, distribution] : parameters) {
    const int64_t size = size_of(distribution);
    if (size == 0) return 0;
    product = TimesSize(product, size);
  }
  return product;
}

// Splits the number of a point into an index for each parameter, and calls `take` with them from
// the last parameter to the first.
template <typename SizeOf, typename Take>
void ForEachIndex(const std::map<std::string, Distribution>& parameters, int64_t point,
                  const SizeOf& size_of, const Take& take) {
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const int64_t size = size_of(it->second);
    take(*it, point % size);
    point /= size;
  }
}

constexpr auto kGridSizeOf = [](const Distribution& distribution) {
  return distribution.grid_size();
};
constexpr auto kDistinctOf = [](const Distribution& distribution) {
  return distribution.distinct();
};

}  // namespace

Space Space::Parse(const std::map<std::string, std::string>& parameters,
                   std::vector<Mistake>& mistakes) {
  Space space;
  for (const auto& [path, text] : parameters) {
    absl::StatusOr<Distribution> distribution = Distribution::Parse(text);
    if (distribution.ok()) {
      space.parameters_.emplace(path, *std::move(distribution));
    } else {
      mistakes.emplace_back(path, std::string(distribution.status().message()));
    }
  }
  return space;
}

int64_t Space::grid_size() const {
  return Product(parameters_, kGridSizeOf);
}

Values Space::GridPoint(int64_t i) const {
  Values values;
  ForEachIndex(parameters_, i, kGridSizeOf, [&](const auto& parameter, int64_t index) {
    values[parameter.first] = parameter.second.GridPoint(index);
  });
  return values;
}

int64_t Space::distinct() const {
  return Product(parameters_, kDistinctOf);
}

Values Space::Draw(uint64_t seed, int64_t trial) const {
  Values values;
  const int64_t points = distinct();
  if (points > 0 && points <= kGridPointsMax) {
    ForEachIndex(parameters_, DrawnPoint(seed, trial % points, points), kDistinctOf,
                 [&](const auto& parameter, int64_t index) {
                   values[parameter.first] = parameter.second.Distinct(index);
                 });
    return values;
  }
  for (const auto& [path, distribution] : parameters_) {
    values[path] = distribution.At(
        Uniform({seed, static_cast<uint64_t>(trial), HashOf(path), Purpose::kValue}));
  }
  return values;
}

// Gives each point a key that is exponentially distributed with its weight as the rate. The order
// of the keys is that of draws without replacement (Efraimidis and Spirakis 2006).
int64_t Space::DrawnPoint(uint64_t seed, int64_t trial, int64_t points) const {
  uint64_t paths = HashOf("");
  std::map<absl::string_view, std::vector<double>> weights;
  for (const auto& [path, distribution] : parameters_) {
    paths = HashOf(path, HashOf("\n", paths));
    std::vector<double>& of_values = weights[path];
    for (int64_t i = 0; i < distribution.distinct(); ++i) {
      of_values.push_back(distribution.Weight(i));
    }
  }
  std::vector<std::pair<double, int64_t>> order;
  for (int64_t point = 0; point < points; ++point) {
    double weight = 1;
    ForEachIndex(parameters_, point, kDistinctOf, [&](const auto& parameter, int64_t index) {
      weight *= weights[parameter.first][static_cast<size_t>(index)];
    });
    const double u = Uniform({seed, static_cast<uint64_t>(point), paths, Purpose::kOrder});
    order.emplace_back(-std::log1p(-u) / weight, point);
  }
  std::nth_element(order.begin(), order.begin() + trial, order.end());
  return order[static_cast<size_t>(trial)].second;
}

Values Space::Explore(const Values& values, uint64_t seed, int64_t trial,
                      int64_t generation) const {
  Values explored;
  for (const auto& [path, distribution] : parameters_) {
    const auto uniform = [&, hash = HashOf(path)](Purpose purpose) {
      return Uniform(
          {seed, static_cast<uint64_t>(trial), static_cast<uint64_t>(generation), hash, purpose});
    };
    const auto value = values.find(path);
    const bool is_redrawn =
        value == values.end() || uniform(Purpose::kIsRedrawn) < kRedrawProbability;
    explored[path] =
        is_redrawn ? distribution.At(uniform(Purpose::kRedrawnValue))
                   : distribution.Neighbour(value->second, uniform(Purpose::kDirection) < 0.5);
  }
  return explored;
}

}  // namespace trainyard::sweep
