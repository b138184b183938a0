// Batches ahead of the training step: worker threads fill a bounded ring, the step takes them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

// Normalised rows, ready for the engine.
struct PreparedBatch {
  std::vector<float> inputs;    // [rows, C, H, W]
  std::vector<int32_t> labels;  // [rows]
};

// Which samples batch number `sequence` holds: indices in the dataset. Called on the prefetch thread, in order
// of sequence from 0; an empty list ends the stream. Pure.
using BatchPlan = std::function<std::vector<int64_t>(int64_t sequence)>;

// Next() is called by one thread. Borrows the dataset. Destruction stops the thread.
class Prefetcher {
 public:
  Prefetcher(const Dataset& dataset, Normalization normalization, BatchPlan plan, int depth);
  ~Prefetcher();

  // The next batch, or null at the end. The pointer is valid until the next call: a slot of the ring, whose
  // memory is used again.
  const PreparedBatch* Next();

  // Time that Next() has spent waiting, since the start.
  absl::Duration waited() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::data
