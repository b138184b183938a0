// Converts the types that other programs save into 32-bit floats.
#include "worker/checkpoint/to_floats.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trainyard::checkpoint {
namespace {

// Converts IEEE 754 binary16: 1 bit of sign, 5 of exponent (bias 15), 10 of fraction.
float FromHalf(uint16_t bits) {
  constexpr int kFractionBits = 10;
  constexpr int kBias = 15;
  const int exponent = (bits >> kFractionBits) & 31;
  const int fraction = bits & ((1 << kFractionBits) - 1);
  float magnitude = 0;
  if (exponent == 31) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), 1 - kBias - kFractionBits);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + (1 << kFractionBits)),
                           exponent - kBias - kFractionBits);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// bf16 is the upper half of a float.
float FromBfloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <typename Stored, typename Convert>
std::vector<float> Converted(const Tensor& tensor, Convert convert) {
  std::vector<float> values(tensor.data.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored{};
    std::memcpy(&stored, tensor.data.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

}  // namespace

absl::StatusOr<std::vector<float>> ToFloats(const Tensor& tensor) {
  std::vector<float> values;
  if (tensor.dtype == "F32") {
    values = Converted<float>(tensor, [](float value) { return value; });
  } else if (tensor.dtype == "F64") {
    values = Converted<double>(tensor, [](double value) { return static_cast<float>(value); });
  } else if (tensor.dtype == "F16") {
    values = Converted<uint16_t>(tensor, FromHalf);
  } else if (tensor.dtype == "BF16") {
    values = Converted<uint16_t>(tensor, FromBfloat);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("has dtype ", tensor.dtype, "; expected F32, F64, F16 or BF16"));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", values[i], " at element ", i, "; expected finite numbers"));
    }
  }
  return values;
}

}  // namespace trainyard::checkpoint
