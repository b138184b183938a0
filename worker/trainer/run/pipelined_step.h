// Implements a step of a rank that computes a stage of a pipeline.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/parallel/communicator.h"
#include "worker/trainer/pipeline/pipeline_setup.h"
#include "worker/trainer/run/step_strategy.h"

namespace trainyard::trainer {

class PipelinedStep final : public StepStrategy {
 public:
  // Compiles this rank's part of the model. `threads` are those of its kernels, and `choices` those
  // of a rank with the same stage (engine::CompileOptions::choices).
  static absl::StatusOr<std::unique_ptr<StepStrategy>> Compile(const RunSetup& setup,
                                                               const std::string& choices);

  engine::ModelState& whole_state() override { return whole_; }
  absl::StatusOr<GangHosting> ChooseHosting(const Gang& gang, std::vector<int> room,
                                            const RunIdentity& before) override;
  absl::Status Join(const Communicators& lines) override;
  parallel::Communicator& siblings() override { return *siblings_; }
  std::unique_ptr<StepCompute> MakeCompute(Trace& trace, Clock& clock) override;
  bool votes_apart() const override { return true; }
  absl::StatusOr<std::vector<Ballot>> Vote(const Ballot& mine) override;
  absl::Status GatherWholeState() override;
  std::map<std::string, double> Summarize() const override;
  void set_timeout(absl::Duration timeout) override { stage_.set_timeout(timeout); }

 private:
  PipelinedStep(const RunSetup& setup, CompiledStage compiled);

  const GridPlace place_;
  const int replicas_;
  PipelineExecutable& stage_;  // executable()
  const std::vector<StagedTensor> tensors_;
  const double predicted_bubble_;
  HeldState whole_;
  parallel::Communicator* host_ = nullptr;
  // The ranks of the same stage, by pipeline. It is null if there is only one pipeline.
  std::unique_ptr<parallel::Communicator> siblings_;
};

}  // namespace trainyard::trainer
