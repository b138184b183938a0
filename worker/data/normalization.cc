// Measures mean and deviation over so few samples that the start of a training is not delayed.
#include "worker/data/normalization.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/base/status_macros.h"

namespace trainyard::data {
namespace {

constexpr int64_t kNormalizationSamples = 10'000;
constexpr int64_t kDecodedNormalizationSamples = 1'024;

}  // namespace

absl::StatusOr<Normalization> MeasureNormalization(const Dataset& dataset, bool skip_corrupt) {
  if (dataset.has_tokens()) return Normalization{};
  const std::vector<int64_t>& shape = dataset.sample_shape();
  const auto channels = static_cast<size_t>(shape[0]);
  const auto area = static_cast<size_t>(shape[1] * shape[2]);
  std::vector<float> pixels(channels * area);
  std::vector<double> sums(channels);
  std::vector<double> squares(channels);
  const int64_t samples = std::min(
      dataset.size(), dataset.decodes() ? kDecodedNormalizationSamples : kNormalizationSamples);
  int64_t skipped = 0;
  for (int64_t i = 0; i < samples; ++i) {
    // In some data sets the classes follow one another, so the samples must be spread evenly.
    const int64_t index = dataset.decodes() ? i * dataset.size() / samples : i;
    int32_t label = 0;
    const absl::Status read =
        dataset.Read(index, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1));
    if (absl::IsDataLoss(read) && skip_corrupt && ++skipped < samples) continue;
    TY_RETURN_IF_ERROR(read);
    for (size_t p = 0; p < pixels.size(); ++p) {
      const double value = pixels[p];
      sums[p / area] += value;
      squares[p / area] += value * value;
    }
  }
  Normalization result;
  for (size_t c = 0; c < channels; ++c) {
    const double count = static_cast<double>(samples - skipped) * static_cast<double>(area);
    const double mean = sums[c] / count;
    const double variance = std::max(0.0, squares[c] / count - mean * mean);
    // A channel that never varies stays as it is, because dividing by its deviation would divide by
    // zero.
    constexpr double kFlat = 1e-12;
    result.mean.push_back(static_cast<float>(mean));
    result.stddev.push_back(variance < kFlat ? 1.0F : static_cast<float>(std::sqrt(variance)));
  }
  return result;
}

}  // namespace trainyard::data
