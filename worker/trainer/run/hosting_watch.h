// Watches how fast the ranks compute, and says when replicas should move. Pure: all ranks see the
// same ballots and so decide alike, without a message.
//
//   starting --1--> measuring --2--> watching --3--> (other hosting) starting
//   1  the first steps are over, in which code is compiled and caches are cold
//   2  enough steps and time to trust a mean: solved, for the first time
//   3  at a boundary, some speed has drifted: solved again
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/parallel/hosting.h"
#include "worker/run_dir/records.h"
#include "worker/trainer/run/ballot.h"

namespace trainyard::trainer {

struct HostingWatchOptions {
  int replicas = 1;
  // Of a replica, in a full step.
  double rows = 1;
  parallel::Hosting hosting;
  // Why it is as it is, for people.
  std::string reason;
  // By rank: the most replicas that fit in its memory; empty: any number.
  std::vector<int> room = {};
  // Steps that count for nothing after a start.
  int64_t warm_up_steps = 2;
  // What is measured before the first decision: so many steps, and what they took all in all on the
  // slowest rank. Small nets do many steps in it, so that a busy moment of a host decides nothing.
  int64_t measured_steps = 8;
  double measured_seconds = 1;
  // Steps that a mean is taken over at most.
  int64_t window_steps = 64;
  // A speed has drifted when it changed by so much.
  double drift = 0.05;
  // Replicas move when a step becomes shorter by so much.
  double saving = 0.03;
};

class HostingWatch {
 public:
  explicit HostingWatch(HostingWatchOptions options);

  // After `step` (1-based), whose ballots tell of the step before it.
  void Add(int64_t step, absl::Span<const Ballot> ballots);

  // The hosting to change to from here on, or nothing. `is_boundary`: a checkpoint is due, where
  // drift counts.
  std::optional<parallel::Hosting> Decide(bool is_boundary);

  // Of all ranks, with the speeds that were last decided by.
  std::vector<run_dir::RankHosting> Records() const;
  const std::string& reason() const { return options_.reason; }
  // How often it changed since the start.
  int changes() const { return changes_; }

 private:
  struct Sample {
    int64_t step = 0;
    std::vector<double> seconds;  // of a row, by rank
  };

  // Of a replica, by rank; means without busy moments.
  std::vector<double> Seconds() const;
  bool HasDrifted(const std::vector<double>& seconds) const;
  bool HasRoom(const parallel::Hosting& hosting);
  std::string SpeedText() const;

  HostingWatchOptions options_;
  int64_t skipped_steps_ = 0;  // since the start
  std::deque<Sample> samples_;
  double measured_seconds_ = 0;
  std::vector<double> solved_;  // seconds by rank that were last decided by; empty: never
  int changes_ = 0;
};

}  // namespace trainyard::trainer
