// Defines a workload: the pool, and the jobs that are submitted to it with their true run times. As
// text it is JSON lines; docs/scheduling.md describes them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"

namespace trainyard::replay {

// Workers that are alike.
struct TraceWorkers {
  std::string name = "worker";  // worker-0001, worker-0002, ...
  int32_t count = 1;
  int32_t devices = 8;
  std::string type = "gpu";
  int64_t memory_bytes = 0;
  int32_t island = 8;  // devices in one NVLink island
  std::map<std::string, std::string> labels;

  friend bool operator==(const TraceWorkers&, const TraceWorkers&) = default;
};

// Times are microseconds since the start of the trace.
struct TraceJob {
  int64_t submit_us = 0;
  std::string user = "anna";
  std::string project;
  int32_t priority = 0;
  core::Demand demand;
  // Device time that it needs: n devices do it in a n-th. An elastic job keeps that rate.
  int64_t work_us = 0;
  int64_t time_limit_us = 0;        // 0: none
  int64_t checkpoint_every_us = 0;  // 0: only when asked for, and when stopped
  int64_t checkpoint_write_us = 5 * core::kSecond;
  int64_t start_us = 5 * core::kSecond;  // from its placement until it runs
  int64_t begin_us = 0;                  // not to be started before
  bool preemptible = true;
  bool saves = true;       // else it writes no checkpoint ever: a stop loses everything
  int32_t array_size = 0;  // 0: no array
  int32_t array_parallel = 0;
  std::vector<int64_t> after;     // jobs of the trace, by place from 1: started after their end
  std::vector<int64_t> after_ok;  // after their success

  int32_t size() const { return array_size == 0 ? 1 : array_size; }

  friend bool operator==(const TraceJob&, const TraceJob&) = default;
};

struct Trace {
  std::string name;
  std::vector<TraceWorkers> workers;
  std::vector<core::QuotaRecord> quotas;
  std::vector<TraceJob> jobs;  // by time of submission

  int64_t devices() const;

  friend bool operator==(const Trace&, const Trace&) = default;
};

// INVALID_ARGUMENT with the line, the field, its value and what was expected.
absl::StatusOr<Trace> ParseTrace(absl::string_view text);
// Its inverse, to the millisecond.
std::string FormatTrace(const Trace& trace);

}  // namespace trainyard::replay
