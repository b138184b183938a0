// Turns a stored sample into a row, which is normalised, or into instructions for a device that has
// the sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/data/augment.h"
#include "worker/data/dataset.h"
#include "worker/data/normalization.h"

namespace trainyard::data {

// The form in which the rows of a batch are prepared. With the last two forms the device does
// augmentation and normalisation, and the rows have the same bits.
enum class RowForm {
  kFloats,  // normalised
  kStored,  // how each row is made of an image that the device has; no image is read
  kBytes,   // as kStored, but with the images' bytes
};

// Rows in one of the forms, ready for the engine.
struct PreparedBatch {
  int64_t rows = 0;
  std::vector<float> inputs;      // for kFloats: [rows, C, H, W], or [rows, T] for tokens
  std::vector<int32_t> labels;    // [rows], or [rows, T] for tokens
  std::vector<StoredRow> stored;  // for kStored and kBytes: [rows]
  std::vector<uint8_t> pixels;    // for kBytes: [rows, C, H, W]
  // The number of corrupt samples that were skipped.
  int64_t skipped = 0;
};

// Says what to do about a corrupt sample (DATA_LOSS). In each case the rows depend only on the plan
// and the data.
enum class OnCorrupt {
  kFail,
  kReplace,   // use the next one in the data set that can be read, framed as this one would be
  kLeaveOut,  // make its batch shorter
};

// Says how a stored sample becomes a row.
struct Preparation {
  Normalization normalization;
  Augmentation augmentation = {};
  uint64_t seed = 0;  // of the augmentation
  OnCorrupt on_corrupt = OnCorrupt::kFail;
  int threads = 1;
  // Forms other than floats are for images whose bytes() are not empty, and for an augmentation
  // that IsStoredRow accepts.
  RowForm form = RowForm::kFloats;
};

// The outcome of preparing one row.
struct RowResult {
  absl::Status status;
  int64_t skipped = 0;       // corrupt samples that were skipped
  bool is_left_out = false;  // true if there is no row
};

// Reads sample `index`, or the one that replaces it, changes it as training in `epoch` would see
// it, and normalises it.
RowResult PrepareRow(const Dataset& dataset, const Preparation& preparation, int64_t epoch,
                     int64_t index, absl::Span<float> values, absl::Span<int32_t> labels);

// Prepares row `row` of a batch of stored rows: how PrepareRow would have made it, its label and,
// if the form is kBytes, its image. Data sets in memory have no corrupt samples.
void PrepareStoredRow(const Dataset& dataset, const Preparation& preparation, int64_t epoch,
                      int64_t index, size_t row, PreparedBatch& batch);

}  // namespace trainyard::data
