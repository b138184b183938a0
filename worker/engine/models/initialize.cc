#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/models/models.h"
#include "worker/engine/models/philox.h"

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

// U(-bound, bound) from the upper 24 bits, which float holds exactly. Key: the seed. Counter: block
// of 4 elements, hash of the name.
std::vector<float> Uniform(uint64_t seed, absl::string_view name, size_t count, double bound) {
  constexpr double kStep = 1.0 / (1 << 24);
  const uint64_t hash = HashName(name);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; i += 4) {
    const uint64_t block = i / 4;
    const PhiloxBlock words =
        Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                    static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    for (size_t lane = 0; lane < 4 && i + lane < count; ++lane) {
      const double unit = (static_cast<double>(words[lane] >> 8) + 0.5) * kStep;
      values[i + lane] = static_cast<float>((2 * unit - 1) * bound);
    }
  }
  return values;
}

}  // namespace

absl::Status InitializeParameters(uint64_t seed, Executable& executable) {
  constexpr absl::string_view kWeight = "weight";
  constexpr absl::string_view kBias = "bias";
  const std::vector<StateTensor>& state = executable.state();
  std::map<std::string, Shape> shapes;
  for (const StateTensor& tensor : state) {
    shapes[tensor.name] = tensor.shape;
  }
  for (size_t i = 0; i < state.size(); ++i) {
    const StateTensor& tensor = state[i];
    const size_t count = static_cast<size_t>(ElementCount(tensor.shape));
    std::vector<float> values(count, 0.0f);
    if (tensor.kind == StateTensor::Kind::kParameter) {
      // A bias goes by its layer's weight; a weight of one dimension is a batch norm's.
      const bool is_bias = absl::EndsWith(tensor.name, kBias);
      const std::string weight =
          is_bias ? absl::StrCat(tensor.name.substr(0, tensor.name.size() - kBias.size()), kWeight)
                  : tensor.name;
      const Shape& shape = shapes[weight];
      if (shape.size() > 1) {
        const double fan_in = static_cast<double>(ElementCount(shape) / shape[0]);
        values = Uniform(seed, tensor.name, count, 1 / std::sqrt(fan_in));
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
