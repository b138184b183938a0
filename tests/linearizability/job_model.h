// Models one job as its users see it: what each verb does in each state, and what the job does by
// itself. Since users do not see the latter, the model is in a set of states at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/linearizability/history.h"

namespace trainyard::linearizability {

// The states in which a job may be. Those that were reached by a change which nobody has seen yet
// are apart from the others: the next sighting must show them at a higher revision.
struct JobStates {
  uint32_t seen = 1;     // a bit for each phase; the job is absent at first
  uint32_t changed = 0;  // the same
  int64_t revision = 0;  // of the last sighting

  friend auto operator<=>(const JobStates&, const JobStates&) = default;
};

// One step of a job: a verb with its answer, or a sighting.
struct JobStep {
  enum class Kind { kCreate, kCancel, kSuspend, kResume, kDelete, kSeen, kAbsent, kExists };

  Kind kind = Kind::kSeen;
  Answer answer = Answer::kDone;
  Phase phase = Phase::kQueued;  // of kSeen
  int64_t revision = 0;          // of kSeen; 0 for a deletion
};

// Returns the states after the step, or nothing if the step is possible in none of `states`. A job
// that `runs` may change by itself before.
std::optional<JobStates> Step(const JobStates& states, const JobStep& step, bool runs);

// Names the states for people.
std::string Text(const JobStates& states);

}  // namespace trainyard::linearizability
