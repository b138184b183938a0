// Compares element-wise kernels, copies, sums of columns, dropout and lrn with plain loops in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine::cuda {
namespace {

// This is more than one block, and not a multiple of anything.
constexpr int64_t kPixels = 301;

double Phi(double x) {
  return 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
}
double TanhOfGelu(double x) {
  return std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}

double Forward(Unary op, double x) {
  switch (op) {
    case Unary::kRelu:
      return std::max(x, 0.0);
    case Unary::kTanh:
      return std::tanh(x);
    case Unary::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Unary::kGelu:
      return x * Phi(x);
    case Unary::kGeluTanh:
      return 0.5 * x * (1 + TanhOfGelu(x));
  }
  return 0;
}

// Returns df / dx, computed from the saved value: y, or x for gelu.
double Slope(Unary op, double saved) {
  constexpr double kStep = 1e-5;
  switch (op) {
    case Unary::kRelu:
      return saved > 0 ? 1 : 0;
    case Unary::kTanh:
      return 1 - saved * saved;
    case Unary::kSigmoid:
      return saved * (1 - saved);
    case Unary::kGelu:
    case Unary::kGeluTanh:
      return (Forward(op, saved + kStep) - Forward(op, saved - kStep)) / (2 * kStep);
  }
  return 0;
}

class ElementwiseKernels : public ::testing::TestWithParam<Layout> {};

TEST_P(ElementwiseKernels, ComputeFunctionsAndTheirGradients) {
  const Layout& layout = GetParam();
  const TestView x = TestView::Random(layout, kPixels, 1);
  const TestView dy = TestView::Random(layout, kPixels, 2);
  for (const Unary op :
       {Unary::kRelu, Unary::kTanh, Unary::kSigmoid, Unary::kGelu, Unary::kGeluTanh}) {
    TestView y(layout, kPixels);
    UnaryForward(op, x.view(), y.view(), kPixels, layout.channels, layout.clears_padding, nullptr);
    EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) { return Forward(op, x.at(p, c)); }), "")
        << static_cast<int>(op);
    TestView dx(layout, kPixels);
    UnaryGradient(op, dy.view(), x.view(), dx.view(), kPixels, layout.channels, nullptr,
                  layout.clears_padding);
    EXPECT_EQ(
        dx.Differences([&](int64_t p, int64_t c) { return dy.at(p, c) * Slope(op, x.at(p, c)); }),
        "")
        << static_cast<int>(op);
  }
}

TEST_P(ElementwiseKernels, AddAndCopyAndAddABias) {
  const Layout& layout = GetParam();
  const TestView a = TestView::Random(layout, kPixels, 1);
  const TestView b = TestView::Random(layout, kPixels, 2);
  TestView y(layout, kPixels);
  Add(a.view(), b.view(), y.view(), kPixels, layout.channels, nullptr, layout.clears_padding);
  EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) { return a.at(p, c) + b.at(p, c); }), "");
  Copy(a.view(), y.view(), kPixels, layout.channels, layout.clears_padding, nullptr);
  EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) { return a.at(p, c); }), "");
  const TestView bias = TestView::Random(layout, 1, 3);
  AddBias(y.view(), bias.view().data, true, kPixels, layout.channels, nullptr);
  EXPECT_EQ(y.Differences(
                [&](int64_t p, int64_t c) { return std::max(a.at(p, c) + bias.at(0, c), 0.0); }),
            "");
}

TEST_P(ElementwiseKernels, ConvertBetweenAllTypes) {
  const Layout& from = GetParam();
  const TestView x = TestView::Random(from, kPixels, 1);
  for (const Type type : {Type::kF32, Type::kF16, Type::kBf16}) {
    const int64_t padded = PaddedChannels(from.channels, type);
    const Layout to = {"", type, from.channels, padded, 0, true};
    TestView y(to, kPixels);
    Copy(x.view(), y.view(), kPixels, from.channels, true, nullptr);
    EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) { return x.at(p, c); }), "");
    Add(x.view(), x.view(), y.view(), kPixels, from.channels, nullptr, true);
    EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) { return 2 * x.at(p, c); }), "");
  }
}

TEST_P(ElementwiseKernels, SumColumns) {
  const Layout& layout = GetParam();
  for (const int64_t pixels : {kPixels, int64_t{2500}}) {
    const TestView x = TestView::Random(layout, pixels, 1, 1);
    const DeviceArray<float> workspace(
        static_cast<size_t>(ColumnSumWorkspace(pixels, layout.channels)) / sizeof(float));
    const std::vector<uint32_t> zeros(kNormTickets / sizeof(uint32_t), 0);
    const DeviceArray<uint32_t> tickets(zeros);
    // Another gradient of several chunks, whose rows of 3 elements lie 4 apart.
    constexpr int64_t kOther = 9000;
    std::vector<float> others(kOther / 3 * 4);
    for (size_t i = 0; i < others.size(); ++i) others[i] = static_cast<float>(i);
    const DeviceArray<float> packed(others);
    for (const bool adds : {false, true}) {
      const DeviceArray<float> sums(
          std::vector<float>(static_cast<size_t>(layout.channels) + 1, 1000));
      ColumnSum(x.view(), pixels, layout.channels, adds, sums.data(), workspace.data(),
                tickets.data(), {}, nullptr);
      const std::vector<float> alone = sums.Read();
      const DeviceArray<float> both(
          std::vector<float>(static_cast<size_t>(layout.channels) + 1, 1000));
      const DeviceArray<float> gradient(std::vector<float>(kOther + 1, 5));
      ColumnSum(x.view(), pixels, layout.channels, adds, both.data(), workspace.data(),
                tickets.data(), {packed.data(), Type::kF32, 3, 4, kOther, adds, gradient.data()},
                nullptr);
      EXPECT_EQ(both.Read(), alone);
      std::vector<float> unpacked(kOther + 1, 5);
      for (size_t i = 0; i < kOther; ++i) {
        unpacked[i] = static_cast<float>(i / 3 * 4 + i % 3) + (adds ? 5 : 0);
      }
      EXPECT_EQ(gradient.Read(), unpacked);
      EXPECT_EQ(tickets.Read(), zeros);
      const std::vector<float> found = sums.Read();
      EXPECT_EQ(found.back(), 1000);
      for (int64_t c = 0; c < layout.channels; ++c) {
        double sum = adds ? 1000 : 0;
        for (int64_t p = 0; p < pixels; ++p) sum += x.at(p, c);
        EXPECT_NEAR(static_cast<double>(found[static_cast<size_t>(c)]), sum, 2e-3) << c;
      }
    }
  }
}

TEST_P(ElementwiseKernels, FlattenAndUnflatten) {
  const Layout& layout = GetParam();
  for (const int64_t side : {1, 5}) {
    const ImageShape shape = {7, layout.channels, side, side + (side > 1 ? 1 : 0)};
    const int64_t plane = shape.height * shape.width;
    const TestView images = TestView::Random(layout, shape.pixels(), 1);
    const int64_t count = layout.channels * plane;
    const Layout flat = {"", layout.type, count, count + 3, 0, false};
    TestView features(flat, shape.rows);
    FlattenImages(images.view(), features.view(), shape, nullptr);
    EXPECT_EQ(features.Differences([&](int64_t n, int64_t i) {
      return images.at(n * plane + i % plane, i / plane);
    }),
              "");
    TestView back(layout, shape.pixels());
    UnflattenImages(features.view(), back.view(), shape, layout.clears_padding, nullptr);
    EXPECT_EQ(back.Differences([&](int64_t p, int64_t c) { return images.at(p, c); }), "");
  }
}

TEST_P(ElementwiseKernels, DropWhatTheReferenceDrops) {
  const Layout& layout = GetParam();
  const int64_t rows = 5;
  const DropoutAttributes dropout = {.rate = 0.4, .layer = 3};
  const RandomPosition position = {.seed = 0x123456789abcdef0, .step = 9, .first_row = 32};
  StepControl values;
  values.key[0] = DropoutKey(position)[0];
  values.key[1] = DropoutKey(position)[1];
  values.step = 9;
  values.first_row = 32;
  const DeviceArray<StepControl> control(std::vector<StepControl>{values});
  for (const int64_t pixels : {1, 6, 8}) {
    for (const bool counts_by_pixel : {false, true}) {
      const TestView x = TestView::Random(layout, rows * pixels, 1);
      TestView y(layout, rows * pixels);
      Dropout(x.view(), y.view(), rows, pixels, layout.channels, 3, DropoutThreshold(dropout),
              static_cast<float>(1 / 0.6), control.data(), nullptr, layout.clears_padding,
              counts_by_pixel);
      EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) {
        const int64_t element =
            counts_by_pixel ? p % pixels * layout.channels + c : c * pixels + p % pixels;
        const PhiloxBlock words = DropoutWords(position, 3, p / pixels, element / 4);
        const bool is_kept = words[static_cast<size_t>(element % 4)] >= DropoutThreshold(dropout);
        return is_kept ? x.at(p, c) / 0.6 : 0.0;
      }),
                "")
          << pixels << " " << counts_by_pixel;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ElementwiseKernels, ::testing::ValuesIn(Layouts()),
                         [](const auto& test) { return NameOf(test.param); });

TEST(Relu, LeavesNoNumberAsItIs) {
  const Layout layout = {"", Type::kF32, 8, 8, 0, false};
  const TestView x(layout, 1, [](int64_t, int64_t c) {
    return c == 3 ? std::nanf("") : static_cast<float>(c) - 4;
  });
  TestView y(layout, 1);
  UnaryForward(Unary::kRelu, x.view(), y.view(), 1, 8, false, nullptr);
  EXPECT_EQ(y.Differences([&](int64_t, int64_t c) {
    return c == 3 ? std::nan("") : std::max(static_cast<double>(c) - 4, 0.0);
  }),
            "");
}

void CheckLrn(const Layout& layout, const LrnParameters& lrn) {
  constexpr int64_t kFew = 9;
  const TestView x = TestView::Random(layout, kFew, 1);
  const TestView dy = TestView::Random(layout, kFew, 2);
  TestView y(layout, kFew);
  TestView dx(layout, kFew);
  LrnForward(lrn, x.view(), y.view(), kFew, layout.channels, nullptr, layout.clears_padding);
  LrnGradient(lrn, dy.view(), x.view(), dx.view(), kFew, layout.channels, nullptr,
              layout.clears_padding);
  const double beta = static_cast<double>(lrn.beta);
  const double factor = static_cast<double>(lrn.alpha) / static_cast<double>(lrn.size);
  const auto scale = [&](int64_t p, int64_t c) {
    double sum = 0;
    for (int64_t d = std::max<int64_t>(c - lrn.size / 2, 0);
         d <= std::min(c + (lrn.size - 1) / 2, layout.channels - 1); ++d) {
      sum += x.at(p, d) * x.at(p, d);
    }
    return static_cast<double>(lrn.k) + factor * sum;
  };
  EXPECT_EQ(y.Differences(
                [&](int64_t p, int64_t c) { return x.at(p, c) * std::pow(scale(p, c), -beta); }),
            "");
  EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) {
    double sum = 0;
    for (int64_t d = std::max<int64_t>(c - (lrn.size - 1) / 2, 0);
         d <= std::min(c + lrn.size / 2, layout.channels - 1); ++d) {
      sum += dy.at(p, d) * x.at(p, d) * std::pow(scale(p, d), -beta - 1);
    }
    return dy.at(p, c) * std::pow(scale(p, c), -beta) - 2 * factor * beta * x.at(p, c) * sum;
  }),
            "");
}

TEST_P(ElementwiseKernels, NormaliseLocalResponses) {
  CheckLrn(GetParam(), {.size = 5, .alpha = 0.5F, .beta = 0.75F, .k = 2});
  CheckLrn(GetParam(), {.size = 4, .alpha = 0.9F, .beta = 0.6F, .k = 1});
}

TEST(Lrn, TakesMoreChannelsThanSharedMemoryHolds) {
  CheckLrn({"", Type::kF32, 12500, 12500, 0, false}, {.size = 3, .alpha = 0.5F});
}

}  // namespace
}  // namespace trainyard::engine::cuda
