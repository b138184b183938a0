// Prepares batches ahead of the training step: threads fill a bounded ring, and the step takes the
// batches in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/data/augment.h"
#include "worker/data/dataset.h"

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

// The samples of a batch, as indices in the data set. An empty batch ends the stream.
struct PlannedBatch {
  // This is not explicit, because most plans have only one epoch.
  PlannedBatch(std::vector<int64_t> samples, int64_t of_epoch = 0)
      : indices(std::move(samples)), epoch(of_epoch) {}

  std::vector<int64_t> indices;
  int64_t epoch;
};
// Plans the batch number `sequence`. It is called on prefetch threads, one at a time, in order of
// sequence from 0. It must be pure.
using BatchPlan = std::function<PlannedBatch(int64_t sequence)>;

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

// Prepares batches. Only one thread may call Next(). It borrows the dataset and the clock. Its
// destruction stops the threads after the samples that they are reading.
class Prefetcher {
 public:
  // At most `depth` >= 1 batches wait. The memory is theirs and that of the batch that was handed
  // out.
  Prefetcher(const Dataset& dataset, Preparation preparation, BatchPlan plan, int depth,
             Clock& clock = *Clock::Real());
  ~Prefetcher();

  // Returns the next batch, or null at the end and at a sample that cannot be read: see status().
  // The pointer is valid until the next call, since it points to a slot of the ring, which is
  // reused.
  const PreparedBatch* Next();

  // Says why Next() returned null: OK at the end, or the error of the first sample that could not
  // be read.
  absl::Status status() const;

  // Returns the time that Next() has spent waiting, since the start.
  absl::Duration waited() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::data
