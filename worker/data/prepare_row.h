// Turns a stored sample into a row, which is normalised, or into instructions for a device that has
// the sample.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/data/prefetch.h"

namespace trainyard::data {

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
