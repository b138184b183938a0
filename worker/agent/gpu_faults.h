// Tells what is wrong with one GPU by what its driver says of it over time.
//
// Two kinds of trouble: what a reading shows is over when the next one shows otherwise (the GPU is
// away, rows wait to be replaced); what happened (an Xid, an uncorrected memory error) stays until
// the GPU was reset, which shows by its absence or by error counters that begin anew, or until the
// daemon was started again after somebody has seen to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/agent/nvml.h"

namespace trainyard::agent {

// A driver that is busy may fail to answer now and then.
inline constexpr int kUnreadableLooksMax = 3;

// Not thread-safe.
class GpuFaults {
 public:
  // One look at it. True where the GPU is back after it was away.
  bool Take(const absl::StatusOr<GpuReading>& reading);
  // Errors of programs change nothing.
  void TakeXid(int64_t xid);

  // Why it is to be set aside, in words; empty where it is well.
  const std::string& reason() const;
  // True where the ranks on it have nothing more to hope for.
  bool ends_ranks() const { return is_away_ || ends_ranks_; }
  // Away: gone from the driver's list, or lost to it.
  bool is_away() const { return is_away_; }

 private:
  void Forget();
  void TakeErrors(int64_t uncorrected);

  bool is_away_ = false;
  int unreadable_looks_ = 0;
  std::string shown_;     // by the last reading
  std::string happened_;  // since the last reset
  bool ends_ranks_ = false;
  std::optional<int64_t> uncorrected_;  // as first seen since the last reset
};

}  // namespace trainyard::agent
