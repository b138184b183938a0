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

// What the rows of a batch are prepared as. The last two leave augmentation and normalisation to
// the device: the rows are the same bits.
enum class RowForm {
  kFloats,  // normalised
  kStored,  // how each is made of an image that the device has: nothing of the image is touched
  kBytes,   // the same, with the images' bytes
};

// Rows in one of the forms, ready for the engine.
struct PreparedBatch {
  int64_t rows = 0;
  std::vector<float> inputs;      // kFloats: [rows, C, H, W]; of tokens [rows, T]
  std::vector<int32_t> labels;    // [rows]; of tokens [rows, T]
  std::vector<StoredRow> stored;  // kStored, kBytes: [rows]
  std::vector<uint8_t> pixels;    // kBytes: [rows, C, H, W]
  // Corrupt samples that were passed over.
  int64_t skipped = 0;
};

// What to do about a sample that is corrupt (DATA_LOSS). Whatever it is, the rows depend on the
// plan and the data alone.
enum class OnCorrupt {
  kFail,
  kReplace,   // by the next one in the data set that can be read, framed as this one would be
  kLeaveOut,  // its batch is shorter
};

// From a stored sample to a row.
struct Preparation {
  Normalization normalization;
  Augmentation augmentation = {};
  uint64_t seed = 0;  // of the augmentation
  OnCorrupt on_corrupt = OnCorrupt::kFail;
  int threads = 1;
  // Others than floats: of images whose bytes() are not empty, and an augmentation that
  // IsStoredRow.
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
