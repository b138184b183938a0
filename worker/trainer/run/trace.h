// Writes the timeline of some steps to ranks/<r>/trace.jsonl: Chrome trace events, one JSON object
// a line.
//
// Times are of the wall clock, so that the timelines of several hosts line up as well as their
// clocks do. Steps 2 to 4 after a start are recorded, and then one in kTraceEvery. So there is
// always a timeline, and it costs nothing in the steps between.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "worker/run_dir/paths.h"

namespace trainyard::trainer {

inline constexpr int64_t kTraceEvery = 256;
inline constexpr int64_t kTraceFileMax = int64_t{4} << 20;

// Belongs to the loop's thread and borrows the clock. Events that cannot be written are left out,
// since no training should end because its timeline is incomplete.
class Trace {
 public:
  // The rows of a rank's timeline. kWait is drawn in the row of computation, which waits for
  // communication.
  enum class Lane { kCompute = 0, kCommunication = 1, kData = 2, kWait = 3 };

  // `device` is the device's name, `first_step` the number of updates done before the start.
  Trace(const run_dir::RunDir& dir, int rank, std::string device, int64_t first_step, Clock& clock);

  // From here on spans belong to `step`, 1-based.
  void BeginStep(int64_t step);
  // Returns false if the step is not recorded.
  bool is_on() const { return is_on_; }
  // Times are Clock::Uptime. Does nothing if the step is not recorded.
  void Add(Lane lane, absl::string_view name, absl::Duration begin, absl::Duration end);
  // Adds to an earlier step, which may have ended: a device's times are known only later.
  void AddLate(int64_t step, Lane lane, absl::string_view name, absl::Duration begin,
               absl::Duration end);
  // Writes what was added.
  void EndStep();

  // Adds the time from its construction to its destruction.
  class Span {
   public:
    Span(Trace& trace, Lane lane, std::string name);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace& trace_;
    const Lane lane_;
    const std::string name_;
    absl::Duration begin_;
  };

 private:
  bool IsWanted(int64_t step) const;
  void AddNames();
  void AddLine(int64_t step, Lane lane, absl::string_view name, absl::Duration begin,
               absl::Duration end);
  bool Open();

  const run_dir::RunDir dir_;
  const int rank_;
  const std::string device_;
  const int64_t first_step_;
  Clock& clock_;
  UniqueFd file_;
  int64_t bytes_ = 0;    // of the file
  bool is_off_ = false;  // no more timelines are written
  bool is_on_ = false;   // in this step
  int64_t step_ = 0;
  absl::Duration to_wall_clock_;  // the difference between wall-clock time and Uptime
  std::string lines_;
};

}  // namespace trainyard::trainer
