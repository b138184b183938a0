// Defines what one call of a compiled step is given, and what it returns.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "common/base/stored_row.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine {

// Rows in host memory. inputs: [rows, elements of one input], row-major (NCHW); token numbers are
// floats too. labels: class numbers, [rows], or [rows, T] for sequences. Only models with dropout
// read `position`.
struct Batch {
  absl::Span<const float> inputs;
  absl::Span<const int32_t> labels;
  RandomPosition position = {};
  // These replace `inputs` after ImageMemory::StoreImages: [rows], each made of a stored image. If
  // stored_pixels is not empty, row r is made of image r of the batch itself instead.
  absl::Span<const StoredRow> stored = {};
  absl::Span<const uint8_t> stored_pixels = {};  // bytes [rows, C, H, W]
  // The rows of each replica, in order; they add up to the batch. Batch norm takes its statistics
  // over each group by itself, and each group counts by its rows. There are at most
  // CompileOptions::max_groups of them if the model has batch norm; evaluations ignore them. Empty
  // means that all rows are one group.
  absl::Span<const int64_t> groups = {};

  // This holds for models with one label for each row; RowsOf (state_table.h) holds for all.
  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
};

// Called when [offset, offset + count) of the reduction arena holds its final local sum.
using ReadyCallback = std::function<void(int64_t offset, int64_t count)>;

// Sums over rows, and over the positions of sequences. The sums of several batches can be added.
struct Evaluation {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t rows = 0;  // the number of labels that were judged
  // The number of labels among the five largest logits. Among equal logits the first comes first.
  int64_t top5 = 0;
};

// The measurements of one step. They cover all ranks once the reduction has been reduced.
struct StepMetrics {
  // The mean over the global batch. It is NaN if a gradient was not finite: a rectifier may hide a
  // NaN from the loss for a while, but the parameters are spoiled.
  double loss = 0;
  double accuracy = 0;  // a fraction in [0, 1]
};

}  // namespace trainyard::engine
