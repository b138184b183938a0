// Batches ahead of the training step: a thread fills a bounded ring, the step takes them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

// Normalised rows, ready for the engine.
struct PreparedBatch {
  std::vector<float> inputs;    // [rows, C, H, W]
  std::vector<int32_t> labels;  // [rows]
};

// Which samples batch number `sequence` holds: indices in the dataset. Called on the prefetch
// thread, in order of sequence from 0; an empty list ends the stream. Pure.
using BatchPlan = std::function<std::vector<int64_t>(int64_t sequence)>;

// Next() is called by one thread. Borrows the dataset and the clock. Destruction stops the thread,
// after the sample that it is reading.
class Prefetcher {
 public:
  // At most `depth` >= 1 batches wait; memory is theirs and that of the one handed out.
  Prefetcher(const Dataset& dataset, Normalization normalization, BatchPlan plan, int depth,
             Clock& clock = *Clock::Real());
  ~Prefetcher();

  // The next batch, or null at the end. The pointer is valid until the next call: a slot of the
  // ring, whose memory is used again.
  const PreparedBatch* Next();

  // Time that Next() has spent waiting, since the start.
  absl::Duration waited() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::data
