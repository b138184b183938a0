// Scales images. The weights of the source pixels are computed in f64, once for each row and column
// of the sample, and applied in f32.
#include "worker/data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/base/check.h"

namespace trainyard::data {
namespace {

// The source pixels [first, first + count) of one output pixel. There are none if the pixel is
// black.
struct Taps {
  int64_t first = 0;
  int64_t count = 0;
  size_t weights = 0;  // the index of their first weight in Filter::weights
};

// The filter for one direction: output i is the weighted sum of its taps.
struct Filter {
  std::vector<Taps> taps;
  std::vector<float> weights;
};

// `scale` is what a pixel of value 1 becomes.
Filter MakeFilter(double begin, double length, int64_t source_size, int64_t out_size,
                  double scale) {
  const double step = length / static_cast<double>(out_size);
  const double support = std::max(1.0, step);
  // Only the content of the framing is used, as if it had been cut out before.
  const int64_t low = std::max<int64_t>(0, static_cast<int64_t>(std::floor(begin)));
  const int64_t high = std::min(source_size, static_cast<int64_t>(std::ceil(begin + length)));
  Filter filter;
  std::vector<double> weights;
  for (int64_t i = 0; i < out_size; ++i) {
    const double center = begin + (static_cast<double>(i) + 0.5) * step;
    Taps taps{.weights = filter.weights.size()};
    if (center >= 0 && center < static_cast<double>(source_size)) {
      taps.first = std::max(low, static_cast<int64_t>(std::floor(center - support)));
      const int64_t last = std::min(high, static_cast<int64_t>(std::ceil(center + support)));
      double sum = 0;
      weights.clear();
      for (int64_t j = taps.first; j < last; ++j) {
        const double distance = std::abs(static_cast<double>(j) + 0.5 - center) / support;
        weights.push_back(std::max(0.0, 1 - distance));
        sum += weights.back();
      }
      taps.count = static_cast<int64_t>(weights.size());
      for (const double weight : weights) {
        filter.weights.push_back(static_cast<float>(scale * weight / sum));
      }
    }
    filter.taps.push_back(taps);
  }
  return filter;
}

bool IsWhole(double value) {
  return std::floor(value) == value;
}

template <typename T>
constexpr double UnitOf() {
  return std::is_same_v<T, uint8_t> ? 1.0 / 255 : 1.0;
}

// In this case the framing has the size of the sample and lies on whole pixels.
template <typename T>
void Copy(const ImageView<T>& image, const Framing& framing, int64_t out_width, int64_t out_height,
          absl::Span<float> out) {
  const auto left = static_cast<int64_t>(framing.x);
  const auto top = static_cast<int64_t>(framing.y);
  const int64_t begin = std::clamp<int64_t>(-left, 0, out_width);
  const int64_t end = std::clamp<int64_t>(image.width - left, begin, out_width);
  std::fill(out.begin(), out.end(), 0.0F);
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(out_height, image.height - top); ++y) {
    const T* row = image.pixels + (top + y) * image.row_elements;
    for (int64_t c = 0; c < image.channels; ++c) {
      float* to = out.data() + (c * out_height + y) * out_width;
      for (int64_t x = begin; x < end; ++x) {
        const T value = row[(left + x) * image.channels + c];
        // The value is divided and not multiplied, so that the result equals that of an image that
        // is not framed.
        to[framing.flip ? out_width - 1 - x : x] = std::is_same_v<T, uint8_t>
                                                       ? static_cast<float>(value) / 255.0F
                                                       : static_cast<float>(value);
      }
    }
  }
}

// A register holds three channels and one float more than needed.
using Pixel = float __attribute__((vector_size(16)));

// Writes one output row of all channels from `sums`, which is [width, channels] with one more
// float.
void FilterRow(const Filter& filter, const float* sums, int64_t channels, bool flip,
               int64_t out_width, int64_t plane, float* out) {
  for (int64_t i = 0; i < out_width; ++i) {
    const Taps& taps = filter.taps[static_cast<size_t>(i)];
    const float* weights = filter.weights.data() + taps.weights;
    float* to = out + (flip ? out_width - 1 - i : i);
    if (channels == 3) {
      Pixel sum = {};
      const float* from = sums + taps.first * 3;
      for (int64_t k = 0; k < taps.count; ++k, from += 3) {
        Pixel pixel;
        std::memcpy(&pixel, from, sizeof(pixel));
        sum += weights[k] * pixel;
      }
      to[0] = sum[0];
      to[plane] = sum[1];
      to[2 * plane] = sum[2];
      continue;
    }
    for (int64_t c = 0; c < channels; ++c) {
      float sum = 0;
      for (int64_t k = 0; k < taps.count; ++k) {
        sum += weights[k] * sums[(taps.first + k) * channels + c];
      }
      to[c * plane] = sum;
    }
  }
}

// Two rows are added at a time, so that the sums are read and written half as often.
template <typename T>
void AddRows(const T* row, int64_t row_elements, const float* weights, int64_t count,
             int64_t elements, float* sums) {
  std::fill(sums, sums + elements, 0.0F);
  for (; count >= 2; count -= 2, row += 2 * row_elements, weights += 2) {
    const T* next = row + row_elements;
    const float a = weights[0];
    const float b = weights[1];
    for (int64_t e = 0; e < elements; ++e) {
      sums[e] += a * static_cast<float>(row[e]) + b * static_cast<float>(next[e]);
    }
  }
  if (count == 0) return;
  const float a = weights[0];
  for (int64_t e = 0; e < elements; ++e) sums[e] += a * static_cast<float>(row[e]);
}

}  // namespace

template <typename T>
void Resample(const ImageView<T>& image, const Framing& framing, int64_t out_width,
              int64_t out_height, absl::Span<float> out) {
  TY_CHECK(static_cast<int64_t>(out.size()) == image.channels * out_width * out_height);
  if (framing.width == static_cast<double>(out_width) &&
      framing.height == static_cast<double>(out_height) && IsWhole(framing.x) &&
      IsWhole(framing.y)) {
    return Copy(image, framing, out_width, out_height, out);
  }
  const Filter across = MakeFilter(framing.x, framing.width, image.width, out_width, 1);
  const Filter down = MakeFilter(framing.y, framing.height, image.height, out_height, UnitOf<T>());
  const int64_t elements = image.width * image.channels;
  std::vector<float> sums(static_cast<size_t>(elements) + 1);
  for (int64_t y = 0; y < out_height; ++y) {
    const Taps& taps = down.taps[static_cast<size_t>(y)];
    AddRows(image.pixels + taps.first * image.row_elements, image.row_elements,
            down.weights.data() + taps.weights, taps.count, elements, sums.data());
    FilterRow(across, sums.data(), image.channels, framing.flip, out_width, out_width * out_height,
              out.data() + y * out_width);
  }
}

template void Resample(const ImageView<uint8_t>&, const Framing&, int64_t, int64_t,
                       absl::Span<float>);
template void Resample(const ImageView<float>&, const Framing&, int64_t, int64_t,
                       absl::Span<float>);

}  // namespace trainyard::data
