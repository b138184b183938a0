#include "worker/checkpoint/to_floats.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Stored>
Tensor Of(const char* dtype, const std::vector<Stored>& values) {
  Tensor tensor{dtype, {static_cast<int64_t>(values.size())}, {}};
  tensor.data.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Stored));
  return tensor;
}

TEST(ToFloats, FloatsStayAndDoublesAreRounded) {
  EXPECT_THAT(*ToFloats(Of<float>("F32", {1.5f, -2})), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(*ToFloats(Of<double>("F64", {0.1, 1e-300})), ElementsAre(0.1f, 0.0f));
}

TEST(ToFloats, HalvesAreExact) {
  // 1, -2, the largest, the smallest normal, the smallest subnormal, 1/3 as it is rounded, -0.
  const std::vector<uint16_t> bits = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x3555, 0x8000};
  EXPECT_THAT(*ToFloats(Of("F16", bits)),
              ElementsAre(1.0f, -2.0f, 65504.0f, 0x1p-14f, 0x1p-24f, 0.333251953125f, -0.0f));
}

TEST(ToFloats, BfloatsAreTheUpperHalfOfFloats) {
  EXPECT_THAT(*ToFloats(Of<uint16_t>("BF16", {0x3f80, 0xc000, 0x0001, 0x7f7f})),
              ElementsAre(1.0f, -2.0f, 0x1p-133f, 0x1.fep127f));
}

TEST(ToFloats, OtherTypesAndWhatIsNotFiniteAreRefused) {
  const auto error = [](const Tensor& tensor) {
    return std::string(ToFloats(tensor).status().message());
  };
  EXPECT_THAT(error(Of<int64_t>("I64", {1})), HasSubstr("dtype I64; expected F32, F64, F16"));
  EXPECT_THAT(error(Of<uint16_t>("F16", {0x3c00, 0x7c00})), HasSubstr("inf at element 1"));
  EXPECT_THAT(error(Of<uint16_t>("BF16", {0x7fc0})), HasSubstr("nan at element 0"));
  EXPECT_THAT(error(Of<double>("F64", {1e300})), HasSubstr("inf at element 0"));
}

}  // namespace
}  // namespace trainyard::checkpoint
