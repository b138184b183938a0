// The tables follow docs/job_lifecycle.md.
#include "tests/linearizability/job_model.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace trainyard::linearizability {
namespace {

constexpr uint32_t Bit(Phase phase) {
  return uint32_t{1} << static_cast<int>(phase);
}

constexpr uint32_t BitsOf(std::initializer_list<Phase> phases) {
  uint32_t bits = 0;
  for (const Phase phase : phases) bits |= Bit(phase);
  return bits;
}

constexpr uint32_t kEnded = BitsOf({Phase::kSucceeded, Phase::kFailed, Phase::kCancelled});
constexpr uint32_t kNotThere = BitsOf({Phase::kAbsent, Phase::kDeleted});

// Returns the phases that a job in this phase may enter next by itself: it is placed, runs, ends,
// fails, is preempted, or has stopped.
uint32_t NextBits(Phase phase) {
  switch (phase) {
    case Phase::kQueued:
      return Bit(Phase::kStarting);
    case Phase::kStarting:
      return BitsOf({Phase::kRunning, Phase::kSucceeded, Phase::kFailed, Phase::kQueued,
                     Phase::kStoppingToQueue});
    case Phase::kRunning:
      return BitsOf({Phase::kSucceeded, Phase::kFailed, Phase::kQueued, Phase::kStoppingToQueue});
    case Phase::kStoppingToCancel:
      return BitsOf({Phase::kCancelled, Phase::kSucceeded});
    case Phase::kStoppingToSuspend:
      return BitsOf({Phase::kSuspended, Phase::kSucceeded, Phase::kFailed});
    case Phase::kStoppingToQueue:
      return BitsOf({Phase::kQueued, Phase::kSucceeded, Phase::kFailed});
    default:
      return 0;
  }
}

// A verb in some phase leads to a phase, which may be the same, or has an answer that says why it
// does nothing.
struct Effect {
  Answer answer = Answer::kDone;
  Phase next = Phase::kAbsent;
};

Effect Stay(Phase phase) {
  return {Answer::kDone, phase};
}

constexpr Effect kRefused = {Answer::kRefused, Phase::kAbsent};
constexpr Effect kMissing = {Answer::kMissing, Phase::kAbsent};

Effect OfCancel(Phase phase) {
  switch (phase) {
    case Phase::kQueued:
    case Phase::kSuspended:
      return {Answer::kDone, Phase::kCancelled};
    case Phase::kStarting:
    case Phase::kRunning:
    case Phase::kStoppingToSuspend:
    case Phase::kStoppingToQueue:
      return {Answer::kDone, Phase::kStoppingToCancel};
    case Phase::kStoppingToCancel:
    case Phase::kCancelled:
      return Stay(phase);
    default:
      return kRefused;
  }
}

Effect OfSuspend(Phase phase) {
  switch (phase) {
    case Phase::kQueued:
      return {Answer::kDone, Phase::kSuspended};
    case Phase::kStarting:
    case Phase::kRunning:
    case Phase::kStoppingToQueue:
      return {Answer::kDone, Phase::kStoppingToSuspend};
    case Phase::kStoppingToSuspend:
    case Phase::kSuspended:
      return Stay(phase);
    default:
      return kRefused;
  }
}

Effect OfResume(Phase phase) {
  switch (phase) {
    case Phase::kSuspended:
      return {Answer::kDone, Phase::kQueued};
    case Phase::kStoppingToSuspend:
      return {Answer::kDone, Phase::kStoppingToQueue};
    case Phase::kQueued:
    case Phase::kStarting:
    case Phase::kRunning:
    case Phase::kStoppingToQueue:
      return Stay(phase);
    default:
      return kRefused;
  }
}

Effect OfDelete(Phase phase) {
  if (phase == Phase::kDeleted) return Stay(phase);
  return (kEnded & Bit(phase)) != 0 ? Effect{Answer::kDone, Phase::kDeleted} : kRefused;
}

Effect Of(JobStep::Kind kind, Phase phase) {
  if (kind == JobStep::Kind::kCreate) {
    if (phase == Phase::kAbsent) return {Answer::kDone, Phase::kQueued};
    return phase == Phase::kDeleted ? kMissing : Stay(phase);
  }
  const bool is_gone = phase == Phase::kDeleted && kind != JobStep::Kind::kDelete;
  if (phase == Phase::kAbsent || is_gone) return kMissing;
  switch (kind) {
    case JobStep::Kind::kCancel:
      return OfCancel(phase);
    case JobStep::Kind::kSuspend:
      return OfSuspend(phase);
    case JobStep::Kind::kResume:
      return OfResume(phase);
    default:
      return OfDelete(phase);
  }
}

// Adds the states that the job may have reached by itself. Any of them may also have changed in a
// way that its phase does not show, such as its progress.
JobStates Wander(JobStates states) {
  states.changed |= states.seen & ~kNotThere;
  uint32_t before = 0;
  while (before != states.changed) {
    before = states.changed;
    for (int i = 0; i < kPhases; ++i) {
      const auto phase = static_cast<Phase>(i);
      if ((before & Bit(phase)) != 0) states.changed |= NextBits(phase);
    }
  }
  return states;
}

std::optional<JobStates> TakeSighting(const JobStates& states, const JobStep& step) {
  const uint32_t bit = Bit(step.phase);
  if (step.phase == Phase::kDeleted) {  // a deletion is told without a revision
    if (((states.seen | states.changed) & bit) == 0) return {};
    return JobStates{bit, 0, states.revision};
  }
  const bool is_known = step.revision == states.revision && (states.seen & bit) != 0;
  const bool is_newer = step.revision > states.revision && (states.changed & bit) != 0;
  if (!is_known && !is_newer) return {};
  return JobStates{bit, 0, step.revision};
}

std::optional<JobStates> Among(JobStates states, uint32_t bits) {
  states.seen &= bits;
  states.changed &= bits;
  if ((states.seen | states.changed) == 0) return {};
  return states;
}

}  // namespace

std::optional<JobStates> Step(const JobStates& states, const JobStep& step, bool runs) {
  const JobStates before = runs ? Wander(states) : states;
  switch (step.kind) {
    case JobStep::Kind::kSeen:
      return TakeSighting(before, step);
    case JobStep::Kind::kAbsent:
      return Among(before, kNotThere);
    case JobStep::Kind::kExists:
      return Among(before, ~kNotThere);
    default:
      break;
  }
  JobStates after{0, 0, states.revision};
  for (int i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    const uint32_t bit = Bit(phase);
    if (((before.seen | before.changed) & bit) == 0) continue;
    const Effect effect = Of(step.kind, phase);
    const bool is_unknown = step.answer == Answer::kUnknown;
    if (!is_unknown && effect.answer != step.answer) continue;
    const bool stays = effect.answer != Answer::kDone || effect.next == phase;
    if (stays) {
      after.seen |= before.seen & bit;
      after.changed |= before.changed & bit;
    } else {
      after.changed |= Bit(effect.next);
    }
  }
  if ((after.seen | after.changed) == 0) return {};
  return after;
}

std::string Text(const JobStates& states) {
  std::string text;
  for (int i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (((states.seen | states.changed) & Bit(phase)) == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : " or ", Name(phase));
  }
  return absl::StrCat(text, ", last seen at revision ", states.revision);
}

}  // namespace trainyard::linearizability
