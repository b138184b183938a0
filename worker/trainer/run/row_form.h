// How the rows of a batch reach the executable: as floats, or as what a device needs to make them
// of bytes.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetch.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::trainer {

// Sets preparation.form. Where the executable computes on a device, the data set has bytes and the
// augmentation can be told, the device gets the images, if they take `bytes_max` at most, else
// each batch its own; it makes the same bits of them as the host would. Floats in all other cases.
absl::Status ChooseRowForm(const data::Dataset& dataset, int64_t bytes_max,
                           engine::Executable& executable, data::Preparation& preparation);

// What the images of a data set may take of a device that has `limit` bytes and gives
// `planned_bytes` of them to the step: a quarter of all, within what is left.
int64_t ImageBytesMax(int64_t limit, int64_t planned_bytes);

// For an evaluation of `dataset` through the same executable: each batch brings its bytes, since
// the device has those of the training split.
data::RowForm EvaluationForm(const data::Dataset& dataset, const data::Preparation& preparation);

// Rows [begin, begin + rows) of the batch. Borrows them.
engine::Batch BatchOfRows(const data::PreparedBatch& batch, int64_t begin, int64_t rows,
                          const engine::RandomPosition& position = {});

}  // namespace trainyard::trainer
