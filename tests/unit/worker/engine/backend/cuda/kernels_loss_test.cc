// Compares softmax cross entropy on the device with double loops, as the reference backend writes
// them.
#include "worker/engine/backend/cuda/kernels/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/worker/engine/backend/cuda/matrices.h"
#include "worker/engine/backend/judge.h"

namespace trainyard::engine::cuda {
namespace {

using testing::DeviceMatrix;
using testing::ExpectNear;
using testing::Floats;
using testing::kPadding;
using testing::kTypes;
using testing::NameOf;
using testing::RandomFloats;
using testing::RandomNumbers;
using testing::Rounded;
using testing::ShuffleDevice;
using testing::ToleranceOf;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Expected {
  double loss = 0;  // sum
  uint64_t correct = 0;
  uint64_t top5 = 0;
  std::vector<double> gradient;  // of the summed loss
};

Expected Compute(const LossParameters& loss, const Floats& logits,
                 const std::vector<int32_t>& labels) {
  Expected expected;
  const double smoothing = static_cast<double>(loss.label_smoothing);
  const double classes = static_cast<double>(loss.classes);
  for (int64_t n = 0; n < loss.labels; ++n) {
    const float* x = logits.data() + n * loss.classes;
    const int64_t label = labels[static_cast<size_t>(n)];
    const int64_t best = std::max_element(x, x + loss.classes) - x;
    const double largest = static_cast<double>(x[best]);
    double sum = 0;
    for (int64_t k = 0; k < loss.classes; ++k) {
      sum += std::exp(static_cast<double>(x[k]) - largest);
    }
    const double logsum = largest + std::log(sum);
    for (int64_t k = 0; k < loss.classes; ++k) {
      const double target = (k == label ? 1 - smoothing : 0) + smoothing / classes;
      const double logit = static_cast<double>(x[k]);
      if (target > 0) {
        expected.loss -= target * (logit - logsum);
      }
      expected.gradient.push_back(std::exp(logit - logsum) - target);
    }
    expected.correct += best == label ? 1 : 0;
    expected.top5 += IsInTop(x, loss.classes, label) ? 1 : 0;
  }
  return expected;
}

struct Results {
  LossTotals totals;
  float loss_sum, correct_sum;
};

class Device {
 public:
  Device(const LossParameters& loss, const std::vector<int32_t>& labels, StepControl control = {})
      : loss_(loss),
        labels_(labels),
        totals_(std::vector<LossTotals>(1)),
        sums_(Floats{100, 200}),
        workspace_(std::vector<uint8_t>(static_cast<size_t>(LossWorkspace(loss.labels)))),
        control_(1) {
    control.labels = labels_.data();
    control_.Write({control});
  }

  Results Forward(View logits, bool adds) { return Run(logits, View(), adds, nullptr); }
  Results Gradient(View logits, View dlogits, const LossScale* scale) {
    return Run(logits, dlogits, false, scale);
  }

 private:
  Results Run(View logits, View dlogits, bool adds, const LossScale* scale) {
    Loss(loss_, logits, dlogits, /*clears_padding=*/true,
         {totals_.data(), sums_.data(), sums_.data() + 1, adds}, control_.data(), scale,
         workspace_.data(), nullptr);
    const Floats sums = sums_.Read();
    return {totals_.Read()[0], sums[0], sums[1]};
  }

  LossParameters loss_;
  DeviceArray<int32_t> labels_;
  DeviceArray<LossTotals> totals_;
  DeviceArray<float> sums_;
  DeviceArray<uint8_t> workspace_;
  DeviceArray<StepControl> control_;
};

Floats Scaled(Floats values, float factor) {
  for (float& value : values) {
    value *= factor;
  }
  return values;
}

// Vectors for a warp and for a block; vectors that a block's registers cannot hold; vectors that
// fill their lanes or not; strides that allow vector loads.
struct Shape {
  int64_t labels, classes, stride;
};
constexpr Shape kShapes[] = {{5, 10, 16},     {37, 1000, 1000}, {3, 1, 8},        {11, 1024, 1024},
                             {9, 1025, 1032}, {2, 5003, 5003},  {2, 30001, 30008}};

TEST(Loss, IsThatOfDoubleLoops) {
  for (const Type type : kTypes) {
    for (const Shape& shape : kShapes) {
      for (const float smoothing : {0.0F, 0.1F}) {
        SCOPED_TRACE(std::string(NameOf(type)) + ", classes " + std::to_string(shape.classes));
        const LossParameters loss = {smoothing, shape.labels, shape.classes, true};
        const Floats logits =
            Rounded(Scaled(RandomFloats(1, shape.labels * shape.classes), 6), type);
        const auto labels = RandomNumbers(2, shape.labels, static_cast<int32_t>(shape.classes));
        const Expected expected = Compute(loss, logits, labels);
        const DeviceMatrix x(type, shape.labels, shape.classes, shape.stride, logits);
        Device device(loss, labels, {.weight = 0.25F});
        for (const bool adds : {true, true, false}) {
          const Results r = device.Forward(x.view(), adds);
          EXPECT_NEAR(r.totals.loss, expected.loss, 2e-6 * std::max(1.0, expected.loss));
          EXPECT_EQ(r.totals.correct, expected.correct);
          EXPECT_EQ(r.totals.top5, expected.top5);
          if (!adds) {
            const double share = 0.25 / static_cast<double>(shape.labels);
            EXPECT_NEAR(r.loss_sum, share * expected.loss, 1e-5);
            EXPECT_NEAR(r.correct_sum, share * static_cast<double>(expected.correct), 1e-6);
          }
        }
      }
    }
  }
}

TEST(Loss, AddsToTheSumsOfTheStep) {
  const LossParameters loss = {0, 4, 3, false};
  const Floats logits = {3, 1, 0, 0, 2, 0, 5, 0, 0, 0, 0, 1};
  const std::vector<int32_t> labels = {0, 1, 2, 2};
  const Expected expected = Compute(loss, logits, labels);
  EXPECT_EQ(expected.correct, 3U);
  const DeviceMatrix x(Type::kF32, 4, 3, 3, logits);
  Device device(loss, labels, {.weight = 0.5F});
  EXPECT_NEAR(device.Forward(x.view(), true).loss_sum, 100 + 0.5 * expected.loss / 4, 1e-5);
  const Results r = device.Forward(x.view(), true);
  EXPECT_NEAR(r.loss_sum, 100 + 2 * 0.5 * expected.loss / 4, 2e-5);
  EXPECT_NEAR(r.correct_sum, 200 + 2 * 0.5 * 3 / 4, 1e-5);
  EXPECT_EQ(r.totals.top5, 0U);  // not asked for
}

TEST(LossGradient, IsThatOfDoubleLoopsInPlaceAndElsewhere) {
  for (const Type type : kTypes) {
    for (const Type gradient_type : kTypes) {
      for (const Shape& shape : kShapes) {
        SCOPED_TRACE(std::string(NameOf(type)) + " to " + NameOf(gradient_type) + ", classes " +
                     std::to_string(shape.classes));
        const LossParameters loss = {0.1F, shape.labels, shape.classes, false};
        const Floats logits =
            Rounded(Scaled(RandomFloats(3, shape.labels * shape.classes), 4), type);
        const auto labels = RandomNumbers(4, shape.labels, static_cast<int32_t>(shape.classes));
        Expected expected = Compute(loss, logits, labels);
        for (double& value : expected.gradient) {
          value *= 0.5 * 8;
        }
        const DeviceMatrix x(type, shape.labels, shape.classes, shape.stride, logits);
        const DeviceMatrix dx(gradient_type, shape.labels, shape.classes, shape.stride);
        const DeviceArray<LossScale> scale(std::vector<LossScale>{{8, 0}});
        Device device(loss, labels, {.gradient_scale = 0.5F});
        const Results r = device.Gradient(x.view(), dx.view(), scale.data());
        EXPECT_EQ(r.totals.loss, device.Forward(x.view(), false).totals.loss);
        const double tolerance = ToleranceOf(gradient_type) + 2e-6;
        ExpectNear(dx.Read(), expected.gradient, tolerance, "gradient");
        const int64_t padded = PaddedChannels(shape.classes, gradient_type);
        if (shape.stride >= padded && padded > shape.classes) {
          EXPECT_EQ(dx.Padding()[0], 0) << "padding";
        }
        if (type == gradient_type) {
          device.Gradient(x.view(), x.view(), scale.data());
          EXPECT_EQ(x.Read(), dx.Read());
        }
      }
    }
  }
}

TEST(LossGradient, HasNoScaleWhereNoneIsKept) {
  const LossParameters loss = {0, 1, 2, false};
  const DeviceMatrix x(Type::kF32, 1, 2, 2, {0, 0});
  const DeviceMatrix dx(Type::kF32, 1, 2, 2);
  Device device(loss, {1}, {.gradient_scale = 1});
  device.Gradient(x.view(), dx.view(), nullptr);
  ExpectNear(dx.Read(), {0.5, -0.5}, 1e-6, "gradient");
}

TEST(Loss, IsNotFiniteWhereALogitIsNot) {
  for (const int64_t classes : {10, 1500}) {
    const LossParameters loss = {0, 3, classes, true};
    for (const float bad : {kNan, kInfinity}) {
      for (const int64_t at : {int64_t{0}, int64_t{7}, classes - 1}) {
        Floats logits = RandomFloats(5, 3 * classes);
        logits[static_cast<size_t>(classes + at)] = bad;
        const DeviceMatrix x(Type::kF32, 3, classes, classes, logits);
        Device device(loss, {1, 2, 3});
        const Results r = device.Forward(x.view(), false);
        EXPECT_FALSE(std::isfinite(r.totals.loss)) << bad << " at " << at;
        EXPECT_FALSE(std::isfinite(r.loss_sum)) << bad << " at " << at;
      }
    }
  }
}

TEST(Loss, OfMaskedLogitsIsThatOfTheOthers) {
  const LossParameters loss = {0, 1, 4, false};
  const Floats logits = {-kInfinity, 1, -kInfinity, 1};
  const DeviceMatrix x(Type::kF32, 1, 4, 4, logits);
  Device device(loss, {1});
  EXPECT_NEAR(device.Forward(x.view(), false).totals.loss, std::log(2.0), 1e-6);
}

TEST(Loss, JudgesEqualAndMissingLogitsAsTheReference) {
  // There are few distinct values, so that the largest occurs several times, and NaN among them.
  for (const int64_t classes : {12, 1300}) {
    const LossParameters loss = {0, 64, classes, true};
    Floats logits = RandomFloats(6, 64 * classes);
    for (float& logit : logits) {
      logit = std::floor(logit * 2);
    }
    const auto labels = RandomNumbers(7, 64, 12);
    for (int64_t n = 0; n < 64; n += 8) {
      logits[static_cast<size_t>(n * classes + n % 16 / 8)] = kNan;
    }
    const Expected expected = Compute(loss, logits, labels);
    EXPECT_GT(expected.top5, expected.correct);
    const DeviceMatrix x(Type::kF32, 64, classes, classes, logits);
    Device device(loss, labels);
    const Results r = device.Forward(x.view(), false);
    EXPECT_EQ(r.totals.correct, expected.correct);
    EXPECT_EQ(r.totals.top5, expected.top5);
  }
}

TEST(Loss, HasTheSameBitsInAnyOrderOfThreads) {
  const LossParameters loss = {0.1F, 3000, 30, true};
  const DeviceMatrix x(Type::kF32, 3000, 30, 30, RandomFloats(8, int64_t{3000} * 30));
  const auto labels = RandomNumbers(9, 3000, 30);
  double losses[2];
  for (uint64_t order = 0; order < 2; ++order) {
    ShuffleDevice(200 + order);
    Device device(loss, labels);
    losses[order] = device.Forward(x.view(), false).totals.loss;
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace trainyard::engine::cuda
