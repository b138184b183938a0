// Views for tests of kernels, in every type and layout: with a gap behind the channels that nothing
// may write, at odd addresses, and padded.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/device_array.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

using ::trainyard::testing::DeviceArray;

// Says how the views of a test lie in memory.
struct Layout {
  const char* name = "";
  Type type = Type::kF32;
  int64_t channels = 8;
  int64_t stride = 8;
  int64_t offset = 0;  // elements before the first
  // Padding is to be cleared, and the stride has room for it.
  bool clears_padding = false;

  // The number of elements that are written, including the padding that is cleared.
  int64_t written() const {
    const int64_t padded = PaddedChannels(channels, type);
    return clears_padding && stride >= padded ? padded : channels;
  }
  double tolerance() const {
    return type == Type::kF32 ? 2e-5 : type == Type::kF16 ? 2e-3 : 1.6e-2;
  }
};

inline void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.name;
}
inline std::string NameOf(const Layout& layout) {
  return layout.name;
}

// Layouts that allow vectors, that need element-wise access, with short last groups, padded, and as
// a part of a wider value.
inline const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> layouts = {
      {"f32", Type::kF32, 16, 16, 0, true},
      {"f32Odd", Type::kF32, 5, 5, 0, false},
      {"f32Padded", Type::kF32, 13, 16, 0, true},
      {"f16", Type::kF16, 40, 40, 0, false},
      {"f16PartAtOddPlace", Type::kF16, 9, 23, 3, false},
      {"bf16", Type::kBf16, 72, 72, 0, true},
      {"bf16Part", Type::kBf16, 16, 48, 8, false},
      {"bf16Padded", Type::kBf16, 35, 40, 0, true},
      {"bf16Odd", Type::kBf16, 3, 3, 1, false},
  };
  return layouts;
}

inline constexpr float kGap = 77;

class TestView {
 public:
  // A view of [pixels, layout.channels], filled with kGap.
  TestView(const Layout& layout, int64_t pixels)
      : layout_(layout),
        pixels_(pixels),
        host_(static_cast<size_t>(layout.offset + pixels * layout.stride), kGap),
        bytes_(host_.size() * static_cast<size_t>(SizeOf(layout.type))) {
    Upload();
  }
  // A view with value(pixel, channel), rounded to the type.
  TestView(const Layout& layout, int64_t pixels,
           const std::function<float(int64_t, int64_t)>& value)
      : TestView(layout, pixels) {
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t c = 0; c < layout.channels; ++c) {
        host_[Index(p, c)] = value(p, c);
      }
    }
    Upload();
    Download();
  }
  // A view with normally distributed values.
  static TestView Random(const Layout& layout, int64_t pixels, unsigned seed, float mean = 0) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(mean, 1);
    return TestView(layout, pixels, [&](int64_t, int64_t) { return normal(random); });
  }

  View view() const {
    return {bytes_.data() + layout_.offset * SizeOf(layout_.type), layout_.stride, layout_.type};
  }
  // The element as it was when it was last written or downloaded.
  double at(int64_t pixel, int64_t channel) const {
    return static_cast<double>(host_[Index(pixel, channel)]);
  }

  void Download() {
    const std::vector<unsigned char> bytes = bytes_.Read();
    for (size_t i = 0; i < host_.size(); ++i) {
      if (layout_.type == Type::kF32) {
        host_[i] = reinterpret_cast<const float*>(bytes.data())[i];
      } else if (layout_.type == Type::kF16) {
        host_[i] = __half2float(reinterpret_cast<const __half*>(bytes.data())[i]);
      } else {
        host_[i] = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(bytes.data())[i]);
      }
    }
  }

  // Downloads the view. Returns where it differs from expected(pixel, channel), where the padding
  // is wrong, and where something else was written, or an empty text.
  std::string Differences(const std::function<double(int64_t, int64_t)>& expected,
                          double tolerance_factor = 1) {
    Download();
    for (int64_t i = 0; i < layout_.offset; ++i) {
      if (host_[static_cast<size_t>(i)] != kGap) {
        return "wrote before its first element";
      }
    }
    for (int64_t p = 0; p < pixels_; ++p) {
      for (int64_t c = 0; c < layout_.stride; ++c) {
        const double value = at(p, c);
        const double wanted = c < layout_.channels    ? expected(p, c)
                              : c < layout_.written() ? 0.0
                                                      : static_cast<double>(kGap);
        const double room = c < layout_.channels ? layout_.tolerance() * tolerance_factor *
                                                       std::max(1.0, std::abs(wanted))
                                                 : 0;
        if (!(std::abs(value - wanted) <= room) && !(std::isnan(value) && std::isnan(wanted))) {
          return "pixel " + std::to_string(p) + ", channel " + std::to_string(c) + ": " +
                 std::to_string(value) + "; expected " + std::to_string(wanted);
        }
      }
    }
    return "";
  }

 private:
  size_t Index(int64_t pixel, int64_t channel) const {
    return static_cast<size_t>(layout_.offset + pixel * layout_.stride + channel);
  }
  void Upload() {
    std::vector<unsigned char> bytes(bytes_.size());
    for (size_t i = 0; i < host_.size(); ++i) {
      if (layout_.type == Type::kF32) {
        reinterpret_cast<float*>(bytes.data())[i] = host_[i];
      } else if (layout_.type == Type::kF16) {
        reinterpret_cast<__half*>(bytes.data())[i] = __float2half(host_[i]);
      } else {
        reinterpret_cast<__nv_bfloat16*>(bytes.data())[i] = __float2bfloat16(host_[i]);
      }
    }
    bytes_.Write(bytes);
  }

  Layout layout_;
  int64_t pixels_;
  std::vector<float> host_;
  DeviceArray<unsigned char> bytes_;
};

// Values that differ from channel to channel, for weights and biases.
inline std::vector<float> ChannelValues(int64_t channels, float first, float step) {
  std::vector<float> values;
  for (int64_t c = 0; c < channels; ++c) {
    values.push_back(first + step * static_cast<float>(c % 7));
  }
  return values;
}

}  // namespace trainyard::engine::cuda
