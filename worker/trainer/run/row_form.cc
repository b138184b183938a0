// Decides once, before training, in which form rows travel to the device.
#include "worker/trainer/run/row_form.h"

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"
#include "common/base/status_macros.h"

namespace trainyard::trainer {
namespace {

constexpr int64_t kPartOfDevice = 4;

}  // namespace

absl::Status ChooseRowForm(const data::Dataset& dataset, int64_t bytes_max,
                           engine::Executable& executable, data::Preparation& preparation) {
  preparation.form = data::RowForm::kFloats;
  const data::ByteSamples samples = dataset.bytes();
  engine::ImageMemory* const memory = executable.image_memory();
  if (memory == nullptr || samples.pixels.empty() ||
      !data::IsStoredRow(preparation.augmentation, dataset.sample_shape())) {
    return absl::OkStatus();
  }
  engine::ImageStore images = {.pixels = samples.pixels,
                               .mean = preparation.normalization.mean,
                               .stddev = preparation.normalization.stddev};
  data::RowForm form = data::RowForm::kStored;
  absl::Status stored = memory->StoreImages(images, bytes_max);
  if (absl::IsResourceExhausted(stored)) {
    images.pixels = {};
    form = data::RowForm::kBytes;
    stored = memory->StoreImages(images, bytes_max);
  }
  TY_RETURN_IF_ERROR(stored);
  preparation.form = form;
  return absl::OkStatus();
}

int64_t ImageBytesMax(int64_t limit, int64_t planned_bytes) {
  return std::clamp<int64_t>(limit - planned_bytes, 0, limit / kPartOfDevice);
}

data::RowForm EvaluationForm(const data::Dataset& dataset, const data::Preparation& preparation) {
  const bool has_bytes = !dataset.bytes().pixels.empty();
  return preparation.form == data::RowForm::kFloats || !has_bytes ? data::RowForm::kFloats
                                                                  : data::RowForm::kBytes;
}

engine::Batch BatchOfRows(const data::PreparedBatch& batch, int64_t begin, int64_t rows,
                          const engine::RandomPosition& position) {
  // Returns the elements of these rows. A vector that is empty, because rows are in another form,
  // gives nothing.
  const auto part = [&](const auto& values) {
    const size_t of_row = values.size() / static_cast<size_t>(batch.rows);
    return absl::MakeConstSpan(values).subspan(static_cast<size_t>(begin) * of_row,
                                               static_cast<size_t>(rows) * of_row);
  };
  return {.inputs = part(batch.inputs),
          .labels = part(batch.labels),
          .position = position,
          .stored = part(batch.stored),
          .stored_pixels = part(batch.pixels)};
}

}  // namespace trainyard::trainer
