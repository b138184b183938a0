// Compares pooling kernels with plain loops over all windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "worker/engine/backend/cuda/kernels/pool.h"

namespace trainyard::engine::cuda {
namespace {

struct Case {
  PoolWindow window;
  ImageShape in;
  ImageShape out;
};

// Windows that lie side by side, that overlap, that have padding, that reach beyond the padding by
// ceil_mode, and that leave out pixels.
std::vector<Case> Cases(int64_t channels) {
  return {
      {{2, 2, 0, true}, {3, channels, 6, 8}, {3, channels, 3, 4}},
      {{3, 1, 1, true}, {2, channels, 5, 4}, {2, channels, 5, 4}},
      {{3, 2, 1, false}, {2, channels, 7, 7}, {2, channels, 4, 4}},
      {{3, 2, 0, true}, {2, channels, 6, 6}, {2, channels, 3, 3}},
      {{3, 2, 1, true}, {2, channels, 6, 6}, {2, channels, 4, 4}},
      {{2, 3, 0, false}, {1, channels, 7, 8}, {1, channels, 2, 3}},
  };
}

// Calls visit(pixel of y, position, pixel of x) for all elements of all windows.
template <class Visit>
void ForEach(const Case& pool, const Visit& visit) {
  const PoolWindow& w = pool.window;
  for (int64_t y = 0; y < pool.out.pixels(); ++y) {
    const int64_t row = y / pool.out.width / pool.out.height;
    for (int64_t position = 0; position < w.kernel * w.kernel; ++position) {
      const int64_t h =
          y / pool.out.width % pool.out.height * w.stride + position / w.kernel - w.padding;
      const int64_t v = y % pool.out.width * w.stride + position % w.kernel - w.padding;
      if (h >= 0 && h < pool.in.height && v >= 0 && v < pool.in.width) {
        visit(y, position, (row * pool.in.height + h) * pool.in.width + v);
      }
    }
  }
}

double Counted(const PoolWindow& w, int64_t at, int64_t size) {
  int64_t count = 0;
  for (int64_t i = at * w.stride - w.padding; i < at * w.stride - w.padding + w.kernel; ++i) {
    const bool is_padding = i < 0 || i >= size;
    count += !is_padding || (w.count_padding && i < size + w.padding) ? 1 : 0;
  }
  return static_cast<double>(count);
}
double Area(const Case& pool, int64_t y) {
  return Counted(pool.window, y / pool.out.width % pool.out.height, pool.in.height) *
         Counted(pool.window, y % pool.out.width, pool.in.width);
}

class PoolKernels : public ::testing::TestWithParam<Layout> {};

TEST_P(PoolKernels, FindTheMaximumAndSendItsGradientBack) {
  const Layout& layout = GetParam();
  const int64_t channels = layout.channels;
  for (const Case& pool : Cases(channels)) {
    for (const int64_t index_stride : {channels, (channels + 15) / 8 * 8}) {
      const bool relu = index_stride == channels;
      // There are few distinct values, so that some maxima occur twice.
      const TestView x(layout, pool.in.pixels(), [](int64_t p, int64_t c) {
        return static_cast<float>((p * 7 + c * 5 + p * c) % 6) - 2;
      });
      const TestView dy = TestView::Random(layout, pool.out.pixels(), 2);
      TestView y(layout, pool.out.pixels());
      TestView dx(layout, pool.in.pixels());
      const auto bytes = static_cast<size_t>(pool.out.pixels() * index_stride);
      const DeviceArray<uint8_t> index(std::vector<uint8_t>(bytes, 99));
      MaxPoolForward(pool.window, x.view(), y.view(), index.data(), index_stride, relu, pool.in,
                     pool.out, layout.clears_padding, nullptr);
      MaxPoolGradient(pool.window, dy.view(), index.data(), index_stride, dx.view(), pool.in,
                      pool.out, layout.clears_padding, nullptr);
      std::vector<uint8_t> first(bytes, 99);
      const auto at = [&](int64_t p, int64_t c) -> uint8_t& {
        return first[static_cast<size_t>(p * index_stride + c)];
      };
      std::vector<double> largest(bytes);
      std::vector<double> gradient(static_cast<size_t>(pool.in.pixels() * channels));
      for (int64_t c = 0; c < channels; ++c) {
        ForEach(pool, [&](int64_t yi, int64_t position, int64_t xi) {
          double& value = largest[static_cast<size_t>(yi * index_stride + c)];
          if (at(yi, c) == 99 || x.at(xi, c) > value) {
            at(yi, c) = static_cast<uint8_t>(position);
            value = x.at(xi, c);
          }
        });
        ForEach(pool, [&](int64_t yi, int64_t position, int64_t xi) {
          const bool is_blocked =
              relu && !(largest[static_cast<size_t>(yi * index_stride + c)] > 0);
          if (is_blocked) {
            at(yi, c) = kNoMaximum;
          } else if (at(yi, c) == position) {
            gradient[static_cast<size_t>(xi * channels + c)] += dy.at(yi, c);
          }
        });
      }
      EXPECT_EQ(index.Read(), first);
      EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) {
        return largest[static_cast<size_t>(p * index_stride + c)];
      }),
                "");
      EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) {
        return gradient[static_cast<size_t>(p * channels + c)];
      }),
                "");
    }
  }
}

TEST_P(PoolKernels, AverageAndSpread) {
  const Layout& layout = GetParam();
  const int64_t channels = layout.channels;
  for (const Case& pool : Cases(channels)) {
    const TestView x = TestView::Random(layout, pool.in.pixels(), 1);
    const TestView dy = TestView::Random(layout, pool.out.pixels(), 2);
    TestView y(layout, pool.out.pixels());
    TestView dx(layout, pool.in.pixels());
    AvgPoolForward(pool.window, x.view(), y.view(), pool.in, pool.out, layout.clears_padding,
                   nullptr);
    AvgPoolGradient(pool.window, dy.view(), dx.view(), pool.in, pool.out, layout.clears_padding,
                    nullptr);
    std::vector<double> mean(static_cast<size_t>(pool.out.pixels() * channels));
    std::vector<double> gradient(static_cast<size_t>(pool.in.pixels() * channels));
    for (int64_t c = 0; c < channels; ++c) {
      ForEach(pool, [&](int64_t yi, int64_t, int64_t xi) {
        mean[static_cast<size_t>(yi * channels + c)] += x.at(xi, c) / Area(pool, yi);
        gradient[static_cast<size_t>(xi * channels + c)] += dy.at(yi, c) / Area(pool, yi);
      });
    }
    EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) {
      return mean[static_cast<size_t>(p * channels + c)];
    }),
              "");
    EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) {
      return gradient[static_cast<size_t>(p * channels + c)];
    }),
              "");
  }
}

TEST_P(PoolKernels, AverageWholeImages) {
  const Layout& layout = GetParam();
  const ImageShape in = {3, layout.channels, 7, 5};
  const TestView x = TestView::Random(layout, in.pixels(), 1, 1);
  const TestView dy = TestView::Random(layout, in.rows, 2);
  TestView y(layout, in.rows);
  TestView dx(layout, in.pixels());
  GlobalAvgPoolForward(x.view(), y.view(), in, layout.clears_padding, nullptr);
  GlobalAvgPoolGradient(dy.view(), dx.view(), in, layout.clears_padding, nullptr);
  EXPECT_EQ(y.Differences([&](int64_t n, int64_t c) {
    double sum = 0;
    for (int64_t p = 0; p < 35; ++p) sum += x.at(n * 35 + p, c);
    return sum / 35;
  }),
            "");
  EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) { return dy.at(p / 35, c) / 35; }), "");
}

TEST_P(PoolKernels, RepeatPixelsAndSumTheirGradients) {
  const Layout& layout = GetParam();
  for (const int64_t scale : {1, 2, 3}) {
    const ImageShape in = {2, layout.channels, 3, 4};
    const int64_t width = in.width * scale;
    // The pixel of x that a pixel of y repeats.
    const auto source = [&](int64_t y) {
      const int64_t line = y / width;
      return line / scale * in.width + y % width / scale;
    };
    const TestView x = TestView::Random(layout, in.pixels(), 1);
    const TestView dy = TestView::Random(layout, in.pixels() * scale * scale, 2);
    TestView y(layout, in.pixels() * scale * scale);
    TestView dx(layout, in.pixels());
    UpsampleForward(x.view(), y.view(), in, scale, layout.clears_padding, nullptr);
    UpsampleGradient(dy.view(), dx.view(), in, scale, layout.clears_padding, nullptr);
    EXPECT_EQ(y.Differences([&](int64_t p, int64_t c) { return x.at(source(p), c); }), "");
    EXPECT_EQ(dx.Differences([&](int64_t p, int64_t c) {
      double sum = 0;
      for (int64_t i = 0; i < in.pixels() * scale * scale; ++i) {
        sum += source(i) == p ? dy.at(i, c) : 0;
      }
      return sum;
    }),
              "");
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PoolKernels, ::testing::ValuesIn(Layouts()),
                         [](const auto& test) { return NameOf(test.param); });

TEST(MaxPool, CountsNoNumberAsLargest) {
  const Layout layout = {"", Type::kF32, 8, 8, 0, false};
  const ImageShape in = {1, 8, 2, 2};
  const ImageShape out = {1, 8, 1, 1};
  const TestView x(layout, 4, [](int64_t p, int64_t c) {
    return p == 2 && c == 1 ? std::nanf("") : static_cast<float>(p);
  });
  TestView y(layout, 1);
  const DeviceArray<uint8_t> index(8);
  MaxPoolForward({2, 2, 0, true}, x.view(), y.view(), index.data(), 8, false, in, out, false,
                 nullptr);
  EXPECT_EQ(y.Differences([](int64_t, int64_t c) { return c == 1 ? std::nan("") : 3.0; }), "");
  EXPECT_EQ(index.Read(), (std::vector<uint8_t>{3, 2, 3, 3, 3, 3, 3, 3}));
}

}  // namespace
}  // namespace trainyard::engine::cuda
