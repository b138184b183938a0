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
#include "worker/data/dataset.h"
#include "worker/data/prepare_row.h"

namespace trainyard::data {

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
