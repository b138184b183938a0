// Implements the reads that a data set need not implement itself, by its plain Read.
#include "worker/data/dataset.h"

#include <functional>
#include <numeric>

#include "common/base/status_macros.h"
#include "worker/data/resample.h"

namespace trainyard::data {

absl::Status Dataset::ReadFramed(int64_t index, const Augmentation& augmentation, uint64_t key,
                                 absl::Span<float> values, absl::Span<int32_t> labels) const {
  if (!augmentation.changes_framing()) return Read(index, values, labels);
  const int64_t channels = sample_shape()[0];
  const int64_t height = sample_shape()[1];
  const int64_t width = sample_shape()[2];
  std::vector<float> whole(values.size());
  TY_RETURN_IF_ERROR(Read(index, absl::MakeSpan(whole), labels));
  const Framing base{
      .width = static_cast<double>(width), .height = static_cast<double>(height), .flip = false};
  const Framing framing = DrawFraming(augmentation, key, width, height, base, width, height);
  const size_t plane = values.size() / static_cast<size_t>(channels);
  for (size_t begin = 0; begin < values.size(); begin += plane) {
    Resample(ImageView<float>{whole.data() + begin, width, height, 1, width}, framing, width,
             height, values.subspan(begin, plane));
  }
  return absl::OkStatus();
}

absl::Status Dataset::Verify(int64_t index) const {
  const std::vector<int64_t>& shape = sample_shape();
  const int64_t elements =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<size_t>(elements));
  std::vector<int32_t> labels(static_cast<size_t>(labels_per_row()));
  return Read(index, absl::MakeSpan(values), absl::MakeSpan(labels));
}

}  // namespace trainyard::data
