// Records which rank computes which replicas, and derives what this rank computes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/hosting.h"
#include "worker/parallel/sum_tree.h"
#include "worker/trainer/plan/step_sequence.h"
#include "worker/trainer/run/run_setup.h"

namespace trainyard::trainer {

struct GangHosting {
  parallel::Hosting ranges;  // by pipeline, or by rank if the model is not cut
  std::string reason;        // for people
  // By rank: the most replicas that its memory allows.
  std::vector<int> room;
  // True if replicas may move to ranks that compute them faster. It is false if ranks cannot be
  // measured one by one, or if there is nothing to move between.
  bool may_change = false;
};

// The share of one rank.
struct HostedShare {
  StepSequence steps{StepSequenceOptions{.epochs = 1}};
  // The order in which a bitwise run sums its hosted replicas.
  std::optional<parallel::LocalSums> sums;
};

// By pipeline: how many replicas it hosts.
std::vector<int> CountsOf(const parallel::Hosting& hosting);

// Returns where the terms of this rank lie: slots of the executable, or -1 for its reduction.
std::vector<int> TermSlots(const RunSetup& setup, const parallel::Hosting& hosting);

// Makes `hosting` the one by which gradients are summed, and returns this rank's share of `steps`.
// All ranks call it alike, between two steps. `exchange` may be null. Returns UNIMPLEMENTED if the
// backend cannot sum several replicas in one order.
absl::StatusOr<HostedShare> TakeShare(const RunSetup& setup, const parallel::Hosting& hosting,
                                      const StepSequence& steps, engine::Executable& executable,
                                      parallel::GradientExchange* exchange);

}  // namespace trainyard::trainer
