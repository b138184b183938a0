// Draws the initial weights from the seed, each parameter by its own name.
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/philox.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

// FNV-1a, 64 bits: a hash that is the same on every machine.
uint64_t HashName(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

// Draws four words for each four elements. The key is the seed; the counter is the block of 4
// elements and the hash of the name.
template <typename Fill>
std::vector<float> Draw(uint64_t seed, absl::string_view name, size_t count, Fill fill) {
  const uint64_t hash = HashName(name);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; i += 4) {
    const uint64_t block = i / 4;
    const PhiloxBlock words =
        Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                    static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const std::array<double, 4> drawn = fill(words);
    for (size_t lane = 0; lane < 4 && i + lane < count; ++lane) {
      values[i + lane] = static_cast<float>(drawn[lane]);
    }
  }
  return values;
}

// Returns a number in (0, 1), from the upper 24 bits, which float holds exactly.
double Unit(uint32_t word) {
  constexpr double kStep = 1.0 / (1 << 24);
  return (static_cast<double>(word >> 8) + 0.5) * kStep;
}

// Draws from U(-bound, bound).
std::vector<float> Uniform(uint64_t seed, absl::string_view name, size_t count, double bound) {
  return Draw(seed, name, count, [bound](const PhiloxBlock& words) {
    std::array<double, 4> values{};
    for (size_t i = 0; i < 4; ++i) values[i] = (2 * Unit(words[i]) - 1) * bound;
    return values;
  });
}

// Draws from N(0, stddev^2), by Box and Muller (1958). It computes in f64, so that differences in
// rounding between mathematical libraries are lost when the result is rounded to f32.
std::vector<float> Normal(uint64_t seed, absl::string_view name, size_t count, double stddev) {
  return Draw(seed, name, count, [stddev](const PhiloxBlock& words) {
    std::array<double, 4> values{};
    for (size_t i = 0; i < 4; i += 2) {
      const double radius = stddev * std::sqrt(-2 * std::log(Unit(words[i])));
      const double angle = 2 * std::numbers::pi * Unit(words[i + 1]);
      values[i] = radius * std::cos(angle);
      values[i + 1] = radius * std::sin(angle);
    }
    return values;
  });
}

}  // namespace

absl::Status InitializeParameters(uint64_t seed, ModelState& executable) {
  constexpr absl::string_view kWeight = "weight";
  constexpr absl::string_view kBias = "bias";
  const std::vector<StateTensor>& state = executable.state();
  std::map<std::string, Shape> shapes;
  for (const StateTensor& tensor : state) {
    shapes[tensor.name] = tensor.shape;
  }
  for (size_t i = 0; i < state.size(); ++i) {
    const StateTensor& tensor = state[i];
    if (tensor.initializer.kind == Initializer::Kind::kBegun) continue;
    const size_t count = static_cast<size_t>(ElementCount(tensor.shape));
    std::vector<float> values(count, 0.0f);
    if (tensor.initializer.kind == Initializer::Kind::kConstant) {
      values.assign(count, static_cast<float>(tensor.initializer.value));
    } else if (tensor.initializer.kind == Initializer::Kind::kNormal) {
      values = Normal(seed, tensor.name, count, tensor.initializer.value);
    } else if (tensor.kind == StateTensor::Kind::kParameter) {
      // A bias depends on its layer's weight. A weight of one dimension belongs to a batch norm.
      const bool is_bias = absl::EndsWith(tensor.name, kBias);
      const std::string weight =
          is_bias ? absl::StrCat(tensor.name.substr(0, tensor.name.size() - kBias.size()), kWeight)
                  : tensor.name;
      const Shape& shape = shapes[weight];
      if (shape.size() > 1) {
        const int64_t fan_in = ElementCount(shape) / shape[0];
        values = Uniform(seed, tensor.name, count, 1 / std::sqrt(static_cast<double>(fan_in)));
      } else if (!is_bias) {
        values.assign(count, 1.0f);
      }
    } else if (tensor.kind == StateTensor::Kind::kBuffer &&
               absl::EndsWith(tensor.name, "running_var")) {
      values.assign(count, 1.0f);
    }
    TY_RETURN_IF_ERROR(executable.WriteState(i, values));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine
