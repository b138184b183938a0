// Defines all that is remembered of providers and their pilots. These are plain values, so that a
// store can keep them, and so that a turn can be computed on a copy and written down before
// anything is done.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "server/provision/core/provider.h"

namespace trainyard::provision {

// The states of a pilot:
//
//   WANTED --1--> SUBMITTED --2--> QUEUED --3--> STARTING --4--> RUNNING --5--> ENDING --6--> ENDED
//
// 1. The provider has answered with an id. Until then it is unknown whether the submission has
//    reached it: it may not have been tried, or its reply may be lost.
// 2. and 3. A listing shows that it waits, or that its allocation has begun.
// 4. A worker has connected.
// 5. It was decided to cancel it. Any earlier state may go there as well.
// 6. A complete listing shows that it has ended, or lacks it. Any earlier state may go there as
//    well: a refused submission, the end of the time limit, somebody else's scancel.
//
// States may be skipped, because a listing can show any of them first.
enum class PilotState { kWanted, kSubmitted, kQueued, kStarting, kRunning, kEnding, kEnded };

// Returns the name of a state for people: "QUEUED".
absl::string_view PilotStateWord(PilotState state);

// A pilot. All times are in microseconds since 1970, and 0 if the thing has not happened.
struct Pilot {
  int64_t number = 0;      // from 1, over all providers; never used again
  int32_t generation = 0;  // of the provider, when the pilot was decided
  std::string name;
  std::string foreign_id;  // empty until it is known
  PilotState state = PilotState::kWanted;
  int64_t create_us = 0;   // when it was decided
  int64_t submit_us = 0;   // when the foreign id became known
  int64_t start_us = 0;    // when its allocation was first seen to have begun
  int64_t connect_us = 0;  // when a worker of it first connected
  int64_t end_us = 0;
  int64_t expire_us = 0;          // when its time limit ends, as the provider says
  int64_t idle_since_us = 0;      // it has had no work since then
  int64_t unneeded_since_us = 0;  // no demand has needed it since then
  int64_t lost_since_us = 0;      // it has run without a connected worker since then
  int64_t drain_us = 0;           // when its workers were last told to take nothing more
  int64_t cancel_us = 0;          // when its cancellation was last ordered
  bool has_worked = false;        // a worker of it has had work
  std::string foreign_reason;     // why it waits, in the provider's words
  std::string reason;             // why it ends or has ended, as a sentence for people

  friend bool operator==(const Pilot&, const Pilot&) = default;
};

// Keeps a provider from being asked again and again in vain.
struct Breaker {
  enum class State { kClosed, kOpen, kHalfOpen };
  State state = State::kClosed;
  // In a row.
  int32_t failed_submissions = 0;
  int32_t failed_starts = 0;
  int32_t trips = 0;        // openings since it was last closed
  int64_t until_us = 0;     // when it half-opens, while it is open
  int64_t first_probe = 0;  // pilots from this number on are probes, while it is half-open
  std::string reason;       // the last failure

  friend bool operator==(const Breaker&, const Breaker&) = default;
};

// A provider and its pilots.
struct Provider {
  ProviderSpec spec;
  int32_t generation = 1;         // grows whenever new pilots would be different
  int32_t proven_generation = 0;  // the newest of which a worker has connected
  bool is_paused = false;         // by a person
  bool is_removing = false;       // it goes once its last pilot has ended
  std::string pause_reason;
  int32_t unused_pilots = 0;  // that came and ended without ever having had work, in a row
  int64_t last_submit_us = 0;
  int64_t listing_us = 0;  // when the newest complete listing was begun
  int64_t reached_us = 0;  // when it last answered; what was before this process does not count
  int32_t strangers = 0;   // allocations in it that have no right to be there
  std::string listing_failure;  // why the newest listing has failed; empty if it has not
  Breaker breaker;
  std::map<int64_t, Pilot> pilots;  // by number

  friend bool operator==(const Provider&, const Provider&) = default;
};

// The state.
struct State {
  std::string server_id;  // see IsServerId
  int64_t now_us = 0;     // goes back at WakeUp at most
  int64_t awake_us = 0;   // when this process began: see WakeUp
  // Providers share it, so that a provider that is removed and added again repeats no name.
  int64_t next_number = 1;
  std::map<std::string, Provider> providers;

  friend bool operator==(const State&, const State&) = default;
};

// Returns true if the allocation may exist or may come to exist.
inline bool IsLive(const Pilot& pilot) {
  return pilot.state != PilotState::kEnded;
}
// Returns true if it is on its way to become a worker.
inline bool IsComing(const Pilot& pilot) {
  return pilot.state < PilotState::kRunning;
}
// Returns true if it counts as waiting in the provider's queue.
inline bool IsWaiting(const Pilot& pilot) {
  return pilot.state <= PilotState::kQueued;
}
// Returns the number of allocations that may exist, strangers included.
int32_t CountLive(const Provider& provider);

}  // namespace trainyard::provision
