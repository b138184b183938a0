// What the ranks must decide alike: to stop, to write a checkpoint, to evaluate. Each rank brings
// its votes to the step's all_reduce, so agreement costs no message of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/parallel/communicator.h"

namespace trainyard::trainer {

// As a vote: this rank wants it. Once reduced: some rank wants it, so all do it after this step.
struct Votes {
  bool stop = false;
  bool checkpoint = false;
  bool evaluate = false;
  // Not a vote: corrupt samples that this rank passed over in the step; once reduced, of all ranks.
  int64_t skipped = 0;

  friend bool operator==(const Votes&, const Votes&) = default;
};

// Sums the reduction arena and the votes of all ranks: in one all_reduce of `host` where the arena
// is the host's memory and small; a device's arena by `device`, which is null for the host's.
// Borrows both.
class StepReduction {
 public:
  explicit StepReduction(parallel::Communicator& host, parallel::Communicator* device = nullptr)
      : host_(host), device_(device) {}

  absl::Status AllReduce(absl::Span<float> arena, Votes& votes);

 private:
  parallel::Communicator& host_;
  parallel::Communicator* const device_;
  std::vector<float> message_;
};

}  // namespace trainyard::trainer
