// Tests the conversions of a batch before the first layer reads it.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "worker/engine/backend/cuda/kernels/input.h"

namespace trainyard::engine::cuda {
namespace {

DeviceArray<StepControl> ControlOf(const void* inputs) {
  return DeviceArray<StepControl>(std::vector<StepControl>{{.inputs = inputs}});
}

class InputKernels : public ::testing::TestWithParam<Layout> {};

TEST_P(InputKernels, ReadAndWriteImages) {
  Layout layout = GetParam();
  layout.clears_padding = true;
  const ImageShape shape = {3, layout.channels, 6, 5};
  constexpr int64_t kPlane = 30;
  std::vector<float> values;
  for (int64_t i = 0; i < shape.pixels() * layout.channels; ++i) {
    values.push_back(static_cast<float>(i % 101) / 4);
  }
  const auto of = [&](int64_t p, int64_t c) {
    const int64_t n = p / kPlane;
    return static_cast<double>(
        values[static_cast<size_t>((n * layout.channels + c) * kPlane + p % kPlane)]);
  };
  const DeviceArray<float> inputs(values);
  const DeviceArray<StepControl> control = ControlOf(inputs.data());
  TestView images(layout, shape.pixels());
  ReadImages(control.data(), images.view(), shape, nullptr);
  EXPECT_EQ(images.Differences(of), "");
  const DeviceArray<float> back(values.size());
  WriteImages(images.view(), back.data(), shape, nullptr);
  // Quarters below 26 are exact in every type.
  EXPECT_EQ(back.Read(), values);
}

TEST_P(InputKernels, ReadFeatures) {
  Layout layout = GetParam();
  layout.clears_padding = false;
  std::vector<float> values;
  for (int64_t i = 0; i < 70 * layout.channels; ++i) {
    values.push_back(static_cast<float>(i % 101) / 4);
  }
  const DeviceArray<float> inputs(values);
  const DeviceArray<StepControl> control = ControlOf(inputs.data());
  TestView features(layout, 70);
  ReadFeatures(control.data(), features.view(), 70, layout.channels, nullptr);
  EXPECT_EQ(features.Differences([&](int64_t p, int64_t c) {
    return static_cast<double>(values[static_cast<size_t>(p * layout.channels + c)]);
  }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, InputKernels, ::testing::ValuesIn(Layouts()),
                         [](const auto& test) { return NameOf(test.param); });

TEST(ReadImages, ShiftsMirrorsNormalisesAndHidesStoredImages) {
  constexpr int64_t kHeight = 4;
  constexpr int64_t kWidth = 6;
  constexpr int64_t kPlane = kHeight * kWidth;
  constexpr int64_t kRows = 4;
  for (const int64_t channels : {1, 3}) {
    std::vector<uint8_t> bytes;
    for (int64_t i = 0; i < 3 * channels * kPlane; ++i) {
      bytes.push_back(static_cast<uint8_t>(i * 37 % 256));
    }
    const DeviceArray<uint8_t> pixels(bytes);
    std::vector<StoredRow> transforms(kRows);
    transforms[0] = {.image = 2};
    transforms[1] = {1, 2, -1, 0, 0, 0, 0, 0};
    transforms[2] = {0, 1, 1, 0, 0, 0, 0, 1};
    transforms[3] = {1, -2, 0, -1, 2, 4, 4, 1};
    const DeviceArray<StoredRow> inputs(transforms);
    const StoredImages stored = {pixels.data(), 0, {0.5F, 0.4F, 0.3F, 0}, {0.2F, 0.25F, 0.3F, 1}};
    const DeviceArray<StepControl> control(
        std::vector<StepControl>{{.inputs = inputs.data(), .stored = stored}});
    for (const Type type : {Type::kF32, Type::kF16, Type::kBf16}) {
      const Layout layout = {"", type, channels, PaddedChannels(channels, type), 0, true};
      TestView images(layout, kRows * kPlane);
      ReadImages(control.data(), images.view(), {kRows, channels, kHeight, kWidth}, nullptr);
      // Does what data/augment.cc does: the shifted part is mirrored and normalised, and a square
      // of it is hidden.
      EXPECT_EQ(images.Differences([&](int64_t p, int64_t c) {
        const StoredRow& t = transforms[static_cast<size_t>(p / kPlane)];
        const int64_t y = p / kWidth % kHeight;
        const int64_t x = p % kWidth;
        if (x >= t.cut_x && x < t.cut_x + t.cut_width && y >= t.cut_y &&
            y < t.cut_y + t.cut_height) {
          return 0.0;
        }
        const int64_t from_x = (t.flip != 0 ? kWidth - 1 - x : x) + t.dx;
        const int64_t from_y = y + t.dy;
        const bool is_inside = from_x >= 0 && from_x < kWidth && from_y >= 0 && from_y < kHeight;
        const double byte = is_inside
                                ? bytes[static_cast<size_t>((t.image * channels + c) * kPlane +
                                                            from_y * kWidth + from_x)]
                                : 0;
        return (byte / 255 - static_cast<double>(stored.mean[c])) /
               static_cast<double>(stored.stddev[c]);
      }),
                "");
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda
