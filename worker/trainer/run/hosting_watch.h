// Watches how fast the ranks compute, and says when replicas should move. It does no I/O. All ranks
// see the same ballots and so decide alike, without a message.
//
//   starting --1--> measuring --2--> watching --3--> (other hosting) starting
//   1  The first steps are over, in which code is compiled and caches are cold.
//   2  There are enough steps and time to trust a mean. The hosting is solved for the first time.
//   3  Some speed has drifted at a boundary. The hosting is solved again.
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
  // The number of rows of a replica in a full step.
  double rows = 1;
  parallel::Hosting hosting;
  // Says to people why the hosting is as it is.
  std::string reason;
  // By rank: the most replicas that fit in its memory. Empty means any number.
  std::vector<int> room = {};
  // The first steps after a start, which do not count.
  int64_t warm_up_steps = 2;
  // The first decision needs this many steps, and this much time in all on the slowest rank. Small
  // networks make many steps in that time, so that a busy moment of a host decides nothing.
  int64_t measured_steps = 8;
  double measured_seconds = 1;
  // The most steps that a mean is taken over.
  int64_t window_steps = 64;
  // A speed has drifted when it has changed by this fraction.
  double drift = 0.05;
  // Replicas move when a step becomes shorter by this fraction.
  double saving = 0.03;
};

class HostingWatch {
 public:
  explicit HostingWatch(HostingWatchOptions options);

  // Call it with the ballots of each step.
  void Add(absl::Span<const Ballot> ballots);

  // Returns the hosting to change to from here on, or nothing. `is_boundary` says that a checkpoint
  // is due, which is when drift counts.
  std::optional<parallel::Hosting> Decide(bool is_boundary);

  // Returns the hosting of all ranks with the speeds by which it was last decided.
  std::vector<run_dir::RankHosting> Records() const;
  const std::string& reason() const { return options_.reason; }
  // Returns how often the hosting has changed since the start.
  int changes() const { return changes_; }

 private:
  struct Sample {
    int64_t step = 0;
    std::vector<double> seconds;  // of a row, by rank
  };

  // Returns the seconds of a replica, by rank. They are means without busy moments.
  std::vector<double> Seconds() const;
  bool HasDrifted(const std::vector<double>& seconds) const;
  bool HasRoom(const parallel::Hosting& hosting);
  std::string SpeedText() const;

  HostingWatchOptions options_;
  int64_t skipped_steps_ = 0;  // since the start
  std::deque<Sample> samples_;
  double measured_seconds_ = 0;
  std::vector<double> solved_;  // seconds by rank of the last decision; empty before the first
  int changes_ = 0;
};

}  // namespace trainyard::trainer
