// Decides how the rows of a batch reach the executable: as floats, or as bytes from which a device
// makes the floats.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetch.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::trainer {

// Sets preparation.form. If the executable keeps images, the data set has bytes and a StoredRow can
// express the augmentation, the device gets all images, as long as they take at most `bytes_max`.
// Beyond that, each batch brings its own bytes. The device makes the same floats of them as the
// host would, to the bit. In all other cases rows are floats.
absl::Status ChooseRowForm(const data::Dataset& dataset, int64_t bytes_max,
                           engine::Executable& executable, data::Preparation& preparation);

// Returns how many bytes the images may take of a device that has `limit` bytes and gives
// `planned_bytes` of them to the step: at most a quarter of all, and at most what is left.
int64_t ImageBytesMax(int64_t limit, int64_t planned_bytes);

// Returns the form for an evaluation of `dataset` through the same executable. Each batch brings
// its own bytes, since the device has those of the training split.
data::RowForm EvaluationForm(const data::Dataset& dataset, const data::Preparation& preparation);

// Returns rows [begin, begin + rows) of the batch, and borrows them.
engine::Batch BatchOfRows(const data::PreparedBatch& batch, int64_t begin, int64_t rows,
                          const engine::RandomPosition& position = {});

}  // namespace trainyard::trainer
