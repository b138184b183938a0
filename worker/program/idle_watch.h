// Decides when a program is idle: it computes nothing to speak of, prints nothing, writes no
// metric, and nobody is connected to it. It is pure: it is given what was seen, and when.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace trainyard::program {

// Holds what a look at all ranks of a host has seen.
struct Signs {
  absl::Duration processor_time;  // of their processes, together
  int64_t written_bytes = 0;      // in their logs and metrics
  int64_t visit_us = 0;           // when somebody was connected last

  friend bool operator==(const Signs&, const Signs&) = default;
};

// The class is not thread-safe.
class IdleWatch {
 public:
  // A notebook that waits takes about a third of this, to ask itself whether there is work.
  static constexpr double kBusyFraction = 0.01;

  explicit IdleWatch(absl::Duration limit) : limit_(limit) {}

  // Returns the time between two looks: a tenth of the limit, and no more than ten seconds.
  absl::Duration interval() const;
  // Takes a look at the uptime `now`. Returns true once the limit is reached.
  bool Look(const Signs& signs, absl::Duration now);
  // Returns how long the program has been idle, as of the last look.
  absl::Duration idle() const { return looked_at_ - busy_at_; }

 private:
  const absl::Duration limit_;
  bool has_signs_ = false;
  Signs signs_;
  absl::Duration looked_at_;
  absl::Duration busy_at_;
};

}  // namespace trainyard::program
