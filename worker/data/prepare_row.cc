// Reads, frames, colours, normalises and cuts out, in this order.
#include "worker/data/prepare_row.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace trainyard::data {
namespace {

// A longer run of corrupt samples is no accident of the disk, but the wrong data set.
constexpr int64_t kMaxReplacements = 100;

void Normalize(const Normalization& normalization, absl::Span<float> pixels) {
  const size_t channels = normalization.mean.size();
  const size_t area = pixels.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    const float mean = normalization.mean[c];
    const float stddev = normalization.stddev[c];
    for (float& pixel : pixels.subspan(c * area, area)) pixel = (pixel - mean) / stddev;
  }
}

}  // namespace

RowResult PrepareRow(const Dataset& dataset, const Preparation& preparation, int64_t epoch,
                     int64_t index, absl::Span<float> values, absl::Span<int32_t> labels) {
  const Augmentation& augmentation = preparation.augmentation;
  const uint64_t key = SampleKey(preparation.seed, epoch, index);
  const int64_t tries = std::min(kMaxReplacements, dataset.size());
  RowResult result;
  while (true) {
    result.status = dataset.ReadFramed(index, augmentation, key, values, labels);
    if (result.status.ok()) break;
    if (!absl::IsDataLoss(result.status) || preparation.on_corrupt == OnCorrupt::kFail) {
      return result;
    }
    LogWarning("skipped a corrupt sample",
               {{"sample", absl::StrCat(index)}, {"error", std::string(result.status.message())}});
    ++result.skipped;
    if (preparation.on_corrupt == OnCorrupt::kLeaveOut) {
      result.status = absl::OkStatus();
      result.is_left_out = true;
      return result;
    }
    if (result.skipped >= tries) return result;
    index = (index + 1) % dataset.size();
  }
  if (dataset.has_tokens()) return result;
  JitterColor(augmentation, key, dataset.sample_shape(), values);
  Normalize(preparation.normalization, values);
  CutOut(augmentation, key, dataset.sample_shape(), values);
  return result;
}

void PrepareStoredRow(const Dataset& dataset, const Preparation& preparation, int64_t epoch,
                      int64_t index, size_t row, PreparedBatch& batch) {
  const ByteSamples samples = dataset.bytes();
  batch.stored[row] =
      DrawStoredRow(preparation.augmentation, SampleKey(preparation.seed, epoch, index),
                    dataset.sample_shape(), index);
  batch.labels[row] = samples.labels[static_cast<size_t>(index)];
  if (preparation.form != RowForm::kBytes) return;
  const size_t elements = samples.pixels.size() / samples.labels.size();
  const uint8_t* from = samples.pixels.data() + static_cast<size_t>(index) * elements;
  std::copy_n(from, elements, batch.pixels.data() + row * elements);
}

}  // namespace trainyard::data
