// Finds out what is wrong with one GPU from what its driver reports over time.
//
// There are two kinds of trouble. A condition (the GPU is away, rows wait to be replaced) is over
// when the next reading no longer shows it. An event (an Xid, an uncorrected memory error) counts
// until the GPU was reset, which shows by its absence or by error counters that start again, or
// until the daemon was started again after somebody has looked at the GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/agent/nvml.h"

namespace trainyard::agent {

// A busy driver may fail to answer now and then, so this many failures in a row are needed.
inline constexpr int kUnreadableLooksMax = 3;

// The faults of a GPU. The class is not thread-safe.
class GpuFaults {
 public:
  // Takes one reading. Returns true if the GPU is back after it was away.
  bool Take(const absl::StatusOr<GpuReading>& reading);
  // Takes an Xid. Errors of programs change nothing.
  void TakeXid(int64_t xid);

  // Returns why the GPU must be set aside, in words, or an empty text if it is well.
  const std::string& reason() const;
  // Returns true if the ranks on it cannot continue.
  bool ends_ranks() const { return is_away_ || ends_ranks_; }
  // Returns true if it is gone from the driver's list, or the driver has lost it.
  bool is_away() const { return is_away_; }

 private:
  void Forget();
  void TakeErrors(int64_t uncorrected);

  bool is_away_ = false;
  int unreadable_looks_ = 0;
  std::string shown_;     // what the last reading shows
  std::string happened_;  // what happened since the last reset
  bool ends_ranks_ = false;
  std::optional<int64_t> uncorrected_;  // the count that was seen first since the last reset
};

}  // namespace trainyard::agent
