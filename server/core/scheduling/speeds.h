// Remembers how much device time jobs have taken, so that the end of a job like them can be
// expected before it has started. It serves forecasts alone: no decision depends on it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/core/lifecycle/submission.h"

namespace trainyard::core {

// The speeds. The class is not thread-safe.
class Speeds {
 public:
  struct Estimate {
    int64_t device_us = 0;  // devices times time
    JobId like;             // the job that took so long for what it did
  };

  // Notes that the job has succeeded, and what it has taken. The newest one of each key counts.
  void Note(JobId job, const Work& work, int64_t device_us);
  // Returns an estimate of 0 if no job like it has succeeded.
  Estimate For(const Work& work) const;

 private:
  struct Known {
    JobId job;
    int64_t length = 0;
    int64_t device_us = 0;
  };
  std::map<std::string, Known, std::less<>> known_;
};

}  // namespace trainyard::core
