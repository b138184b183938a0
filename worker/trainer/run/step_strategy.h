// A strategy decides how one rank takes part in a step: with the whole model, or with a stage of a
// pipeline.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/communicator.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/run/ballot.h"
#include "worker/trainer/run/gang.h"
#include "worker/trainer/run/gang_hosting.h"
#include "worker/trainer/run/run_setup.h"
#include "worker/trainer/run/state_file.h"
#include "worker/trainer/run/step_compute.h"
#include "worker/trainer/run/trace.h"

namespace trainyard::trainer {

// The loop, the exchange and the checkpoints are the same for both implementations, which are
// WholeStep (whole_step.h) and PipelinedStep (pipelined_step.h). One thread uses it. All ranks of a
// gang have the same strategy and call its collectives alike.
class StepStrategy {
 public:
  virtual ~StepStrategy() = default;
  StepStrategy(const StepStrategy&) = delete;
  StepStrategy& operator=(const StepStrategy&) = delete;

  // Computes this rank's part of the steps, updates and evaluations.
  engine::Executable& executable() { return *model_.executable; }
  const CompiledModel& model() const { return model_; }
  // Returns the most replicas that the memory of this rank allows.
  int replica_room() const { return replica_room_; }

  // Returns the state of the whole model. Rank 0 initialises or restores it before Join, which
  // distributes it, and writes it to checkpoints after GatherWholeState.
  virtual engine::ModelState& whole_state() = 0;

  // Chooses the first hosting. `gang` has no exchange yet; `room` is by rank; `before` is what rank
  // 0 resumes from. This is a collective.
  virtual absl::StatusOr<GangHosting> ChooseHosting(const Gang& gang, std::vector<int> room,
                                                    const RunIdentity& before) = 0;
  // Connects what the strategy needs besides the gang's lines, which it borrows, and gives every
  // rank its part of rank 0's state. This is a collective.
  virtual absl::Status Join(const Communicators& lines) = 0;
  // Returns the ranks that sum gradients with this one. It may be called only after Join.
  virtual parallel::Communicator& siblings() = 0;

  // Makes the computation. It borrows the strategy and the arguments.
  virtual std::unique_ptr<StepCompute> MakeCompute(Trace& trace, Clock& clock) = 0;

  // Ballots travel with the gradients if the exchange is between all ranks. If it is not, Vote() is
  // a collective of all ranks. It returns the ballots that are known before the exchange.
  virtual bool votes_apart() const = 0;
  virtual absl::StatusOr<std::vector<Ballot>> Vote(const Ballot& mine) = 0;

  // Brings the state of all stages into whole_state() of rank 0. This is a collective.
  virtual absl::Status GatherWholeState() = 0;
  // Logs, and returns by metric, what it measured over all steps.
  virtual std::map<std::string, double> Summarize() const = 0;
  // Sets the timeout of the lines that Join connected.
  virtual void set_timeout(absl::Duration timeout) = 0;

 protected:
  StepStrategy(CompiledModel model, int replica_room)
      : model_(std::move(model)), replica_room_(replica_room) {}

 private:
  CompiledModel model_;
  const int replica_room_;
};

}  // namespace trainyard::trainer
