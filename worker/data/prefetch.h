// Batches ahead of the training step: threads fill a bounded ring, the step takes them in order.
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

// Which samples a batch holds: indices in the data set; none ends the stream.
struct PlannedBatch {
  // Not explicit: most plans have one epoch.
  PlannedBatch(std::vector<int64_t> samples, int64_t of_epoch = 0)
      : indices(std::move(samples)), epoch(of_epoch) {}

  std::vector<int64_t> indices;
  int64_t epoch;
};
// The batch number `sequence`. Called on prefetch threads, one at a time, in order of sequence from
// 0. Pure.
using BatchPlan = std::function<PlannedBatch(int64_t sequence)>;

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

// Next() is called by one thread. Borrows the dataset and the clock. Destruction stops the threads,
// after the samples that they are reading.
class Prefetcher {
 public:
  // At most `depth` >= 1 batches wait; memory is theirs and that of the one handed out.
  Prefetcher(const Dataset& dataset, Preparation preparation, BatchPlan plan, int depth,
             Clock& clock = *Clock::Real());
  ~Prefetcher();

  // The next batch, or null at the end and at a sample that cannot be read: see status(). The
  // pointer is valid until the next call: a slot of the ring, whose memory is used again.
  const PreparedBatch* Next();

  // Why Next() gave nothing: OK at the end, or the error of the first sample that could not be
  // read.
  absl::Status status() const;

  // Time that Next() has spent waiting, since the start.
  absl::Duration waited() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::data
