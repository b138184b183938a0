// Implements a step of a rank that computes the whole model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/parallel/communicator.h"
#include "worker/trainer/run/step_strategy.h"

namespace trainyard::trainer {

// The line over which batch norm sums its statistics if the spec synchronises them.
struct StatisticsLine {
  std::unique_ptr<parallel::Communicator> communicator;  // null until the ranks are connected

  // Sums over the ranks, in their order, so that all have the same bits.
  absl::Status Sum(absl::Span<double> values);
};

class WholeStep final : public StepStrategy {
 public:
  // Compiles this rank's part of the model. `threads` are those of its kernels, and `choices` were
  // measured by another rank, or are empty.
  static absl::StatusOr<std::unique_ptr<StepStrategy>> Compile(const RunSetup& setup,
                                                               const std::string& choices);

  engine::ModelState& whole_state() override { return executable(); }
  absl::StatusOr<GangHosting> ChooseHosting(const Gang& gang, std::vector<int> room,
                                            const RunIdentity& before) override;
  absl::Status Join(const Communicators& lines) override;
  parallel::Communicator& siblings() override { return *host_; }
  std::unique_ptr<StepCompute> MakeCompute(Trace& trace, Clock& clock) override;
  bool votes_apart() const override { return false; }
  absl::StatusOr<std::vector<Ballot>> Vote(const Ballot& mine) override;
  absl::Status GatherWholeState() override { return absl::OkStatus(); }
  std::map<std::string, double> Summarize() const override { return {}; }
  void set_timeout(absl::Duration timeout) override;

 private:
  WholeStep(const RunSetup& setup, CompiledModel model, int replica_room,
            std::shared_ptr<StatisticsLine> statistics);

  const GridPlace place_;
  const int replicas_;
  // Shared with the executable. It is null if batch norm does not sum over the ranks.
  const std::shared_ptr<StatisticsLine> statistics_;
  parallel::Communicator* host_ = nullptr;
};

}  // namespace trainyard::trainer
