// Tests which differences of candidates count as rounding.
#include "worker/engine/backend/cuda/tuning/agreement.h"

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/matrices.h"

namespace trainyard::engine::cuda {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::byte> Encoded(const std::vector<float>& values, Type type) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(SizeOf(type)));
  std::byte* to = bytes.data();
  for (const float value : values) {
    testing::Encode(type, value, to);
    to += SizeOf(type);
  }
  return bytes;
}

double DifferenceOf(const std::vector<float>& a, const std::vector<float>& b,
                    const Exactness& exactness) {
  return Difference(Encoded(a, exactness.type), Encoded(b, exactness.type), exactness);
}

// Products with random signs and magnitudes, as those of noise.
std::vector<float> Products(std::mt19937& random, int64_t count) {
  std::uniform_real_distribution<float> magnitude(-7, 1);
  std::vector<float> products;
  for (int64_t i = 0; i < count; ++i) {
    products.push_back(std::exp2(magnitude(random)) * (random() % 2 == 0 ? 1.0F : -1.0F));
  }
  return products;
}

float SumOf(const std::vector<float>& terms, size_t parts) {
  float total = 0;
  for (size_t part = 0; part < parts; ++part) {
    float sum = 0;
    for (size_t i = part; i < terms.size(); i += parts) sum += terms[i];
    total += sum;
  }
  return total;
}

// Sums of the same products in three orders, and without one of the products.
struct Sums {
  std::vector<float> in_order, in_parts, one_missing;
};

Sums SumsOf(int64_t length) {
  Sums sums;
  std::mt19937 random(7);
  constexpr int kElements = 2000;
  for (int i = 0; i < kElements; ++i) {
    std::vector<float> products = Products(random, length);
    sums.in_order.push_back(SumOf(products, 1));
    sums.in_parts.push_back(SumOf(products, 16));
    products.pop_back();
    sums.one_missing.push_back(SumOf(products, 1));
  }
  return sums;
}

TEST(Agreement, AnotherOrderOfSumsAgreesAndAMissingProductDoesNot) {
  for (const int64_t length : {9, 576, 4608}) {
    const Sums sums = SumsOf(length);
    for (const Type type : {Type::kF32, Type::kF16, Type::kBf16}) {
      const Exactness exactness = {.type = type, .length = length};
      EXPECT_LE(DifferenceOf(sums.in_parts, sums.in_order, exactness), 1) << length;
      EXPECT_GT(DifferenceOf(sums.one_missing, sums.in_order, exactness), 1) << length;
    }
  }
}

// Returns the value without the digits that f32 lacks.
double Truncated(double value) {
  int exponent = 0;
  const double digits = std::frexp(value, &exponent);
  return std::ldexp(std::trunc(std::ldexp(digits, 24)), exponent - 24);
}

// Adds 16 products at a time to a sum in f32, as tensor cores do, without splitting the sum.
TEST(Agreement, LongSumsOfTensorCoresAgreeWithExactOnes) {
  std::mt19937 random(11);
  constexpr int64_t kLength = 1 << 18;
  constexpr int kElements = 24;
  std::vector<float> exact, truncated;
  for (int i = 0; i < kElements; ++i) {
    double sum = 0, kept = 0;
    for (int64_t done = 0; done < kLength; done += 16) {
      double some = 0;
      for (const float product : Products(random, 16)) some += static_cast<double>(product);
      sum += some;
      kept = Truncated(kept + some);
    }
    exact.push_back(static_cast<float>(sum));
    truncated.push_back(static_cast<float>(kept));
  }
  const Exactness exactness = {.type = Type::kF32, .length = kLength};
  EXPECT_LE(DifferenceOf(truncated, exact, exactness), 1);
  // Sums that are too small by a hundredth are not.
  for (float& value : truncated) value *= 0.99F;
  EXPECT_GT(DifferenceOf(truncated, exact, exactness), 1);
}

TEST(Agreement, FactorsMayBeRoundedOnlyWhereTheProblemSaysSo) {
  std::mt19937 random(3);
  std::vector<float> exact, rounded;
  constexpr int kElements = 500;
  constexpr int kLength = 64;
  for (int i = 0; i < kElements; ++i) {
    std::vector<float> products = Products(random, kLength);
    exact.push_back(SumOf(products, 1));
    for (float& product : products) {
      // f16 has the digits of tf32.
      product = __half2float(__float2half_rn(product));
    }
    rounded.push_back(SumOf(products, 1));
  }
  Exactness exactness = {.type = Type::kF32, .length = kLength};
  EXPECT_GT(DifferenceOf(rounded, exact, exactness), 1);
  exactness.factor_roundoff = kTf32Roundoff;
  EXPECT_LE(DifferenceOf(rounded, exact, exactness), 1);
}

TEST(Agreement, OneWrongElementIsFound) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 24);
  std::vector<float> right(1 << 18);
  for (float& value : right) value = normal(random);
  std::vector<float> wrong = right;
  wrong[123'456] += 1;
  for (const Type type : {Type::kF32, Type::kF16, Type::kBf16}) {
    const Exactness exactness = {.type = type, .length = 576};
    EXPECT_EQ(DifferenceOf(right, right, exactness), 0);
    EXPECT_GT(DifferenceOf(wrong, right, exactness), 1);
  }
}

// The first positions of attention are sums of few terms, and larger than all others.
TEST(Agreement, ElementsAreComparedWithThoseAroundThem) {
  std::vector<float> a(1024, 0.01F);
  for (size_t i = 0; i < 64; ++i) a[i] = 1;
  std::vector<float> b = a;
  const Exactness exactness = {
      .type = Type::kF32, .factor_roundoff = UnitRoundoff(Type::kBf16), .length = 1024};
  b[3] += 0.01F;
  EXPECT_LE(DifferenceOf(b, a, exactness), 1);
  b[1000] += 0.01F;
  EXPECT_GT(DifferenceOf(b, a, exactness), 1);
}

TEST(Agreement, NumbersThatAreNotFiniteAgreeOnlyWithEachOther) {
  const float nan = std::nanf("");
  const auto inf = static_cast<float>(kInfinity);
  const Exactness exactness = {.type = Type::kF16, .length = 4};
  EXPECT_EQ(DifferenceOf({1, nan, inf}, {1, inf, nan}, exactness), 0);
  EXPECT_EQ(DifferenceOf({1, nan}, {1, 2}, exactness), kInfinity);
  EXPECT_EQ(DifferenceOf({1, 2}, {1, inf}, exactness), kInfinity);
  EXPECT_EQ(DifferenceOf({0, 0}, {0, 0}, exactness), 0);
  EXPECT_EQ(DifferenceOf({0, 1e-3F}, {0, 0}, exactness), 1 / (2 * 0x1p-11));
}

// A bench whose candidates write one number each to the end of the output.
class Candidates {
 public:
  explicit Candidates(int64_t count) : count_(count) {
    EXPECT_TRUE(bench_.Open().ok());
    const auto block = bench_.Allocate(count * int64_t{sizeof(float)});
    EXPECT_TRUE(block.ok()) << block.status();
    data_ = *block;
  }

  // A NaN stands for a candidate that does not run.
  Agreement Compare(const std::vector<float>& last) { return Compare(last, nullptr); }
  // `right` is what the arbiter writes.
  Agreement Compare(const std::vector<float>& last, float right) {
    return Compare(last, [&] { return Write(right); });
  }

 private:
  Agreement Compare(const std::vector<float>& last, const std::function<absl::Status()>& arbiter) {
    const Output output = {data_, count_ * int64_t{sizeof(float)}, {.type = Type::kF32}};
    const auto agreement = CompareCandidates(
        bench_, {output}, last.size(), [&](size_t i) { return Write(last[i]); }, arbiter);
    EXPECT_TRUE(agreement.ok()) << agreement.status();
    return *agreement;
  }

  absl::Status Write(const float& last) {
    if (std::isnan(last)) return absl::InternalError("no");
    const cudaError_t error =
        cudaMemcpyAsync(static_cast<float*>(data_) + count_ - 1, &last, sizeof(float),
                        cudaMemcpyHostToDevice, bench_.stream());
    return error == cudaSuccess ? absl::OkStatus() : absl::InternalError("cannot copy");
  }

  const int64_t count_;
  Bench bench_;
  void* data_ = nullptr;
};

TEST(CompareCandidates, MostDecide) {
  Candidates candidates(100);
  const Agreement agreement = candidates.Compare({7, 5, std::nanf(""), 5});
  EXPECT_EQ(agreement.reference, 1U);
  EXPECT_EQ(agreement.compared_with(), ComparedWith::kCandidates);
  EXPECT_TRUE(agreement.Differs(0));
  EXPECT_FALSE(agreement.Differs(1));
  EXPECT_FALSE(agreement.Differs(2)) << "it does not run";
  EXPECT_FALSE(agreement.Agrees(2));
  EXPECT_TRUE(agreement.Agrees(3));
  EXPECT_EQ(agreement.largest(), 0);
}

TEST(CompareCandidates, OfTwoThatDifferTheFirstIsTaken) {
  const Agreement agreement = Candidates(100).Compare({7, 5});
  EXPECT_EQ(agreement.reference, 0U);
  EXPECT_TRUE(agreement.Differs(1));
}

TEST(CompareCandidates, ThoseThatDoNotRunDecideNothing) {
  const Agreement agreement = Candidates(100).Compare({std::nanf(""), std::nanf(""), 5});
  EXPECT_EQ(agreement.reference, 2U);
  EXPECT_EQ(agreement.compared_with(), ComparedWith::kNothing);
  EXPECT_THAT(agreement.runs, ElementsAre(false, false, true));
}

TEST(CompareCandidates, AnArbiterDecidesAgainstMost) {
  const Agreement agreement = Candidates(100).Compare({5, 7, 5, std::nanf("")}, 7);
  EXPECT_EQ(agreement.compared_with(), ComparedWith::kOwnKernel);
  EXPECT_TRUE(agreement.Differs(0));
  EXPECT_TRUE(agreement.Agrees(1));
  EXPECT_TRUE(agreement.Differs(2));
  EXPECT_FALSE(agreement.Differs(3)) << "it does not run";
  EXPECT_FALSE(agreement.is_disputed());
}

TEST(CompareCandidates, AnArbiterFindsWhatTheyHaveInCommon) {
  for (const std::vector<float>& last : {std::vector<float>{5}, {5, 5}, {std::nanf(""), 5}}) {
    EXPECT_TRUE(Candidates(100).Compare(last, 7).is_disputed());
    EXPECT_FALSE(Candidates(100).Compare(last, 5).is_disputed());
    EXPECT_FALSE(Candidates(100).Compare(last).is_disputed());
  }
  EXPECT_FALSE(Candidates(100).Compare({std::nanf("")}, 7).is_disputed()) << "none runs";
}

TEST(CompareCandidates, WithoutTheArbiterMostDecide) {
  const Agreement agreement = Candidates(100).Compare({7, 5, 5}, std::nanf(""));
  EXPECT_EQ(agreement.reference, 1U);
  EXPECT_EQ(agreement.compared_with(), ComparedWith::kCandidates);
}

TEST(CompareCandidates, TheEndOfALargeOutputIsCompared) {
  const Agreement agreement = Candidates((int64_t{3} << 20) + 1).Compare({7, 7, 5});
  EXPECT_TRUE(agreement.Differs(2));
  EXPECT_TRUE(agreement.Agrees(1));
}

}  // namespace
}  // namespace trainyard::engine::cuda
