// Defines what a turn is told, and what it decides.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::provision {

// The state of an allocation at its provider.
enum class ForeignState {
  kWaiting,
  kActive,     // it has nodes
  kLeaving,    // it is about to end
  kTimedOut,   // it has reached its time limit
  kCancelled,  // somebody has cancelled it
  kCompleted,  // its program has ended without an error
  kFailed,     // anything else: its program has failed, a node has died
};

inline bool HasEnded(ForeignState state) {
  return state > ForeignState::kLeaving;
}

// An allocation as its provider lists it.
struct ListedPilot {
  std::string name = {};
  std::string foreign_id = {};
  ForeignState state = ForeignState::kWaiting;
  std::string reason = {};  // in the provider's words
  int64_t start_us = 0;     // when it began; 0 if unknown
  int64_t expire_us = 0;    // when its time limit ends; 0 if unknown
};

// The answer of a provider that was asked for all allocations that are ours. It may list others.
struct Listing {
  int64_t begin_us = 0;      // taken before the provider was asked
  std::string failure = {};  // why there is no list; empty if it is complete
  std::vector<ListedPilot> pilots = {};
};

// The outcome of a submission, as far as it is known.
struct SubmitResult {
  enum class Kind {
    kAccepted,
    kRefused,  // the provider has said that it did not take it
    kUnknown,  // no reply came, or one that does not tell
  };
  std::string pilot = {};
  Kind kind = Kind::kUnknown;
  std::string foreign_id = {};
  std::string reason = {};
};

// The news of one provider.
struct ProviderNews {
  std::vector<SubmitResult> submitted = {};
  std::optional<Listing> listing = {};
};

// A pilot of which the server knows workers.
struct WorkerSight {
  std::string pilot = {};
  int32_t connected = 0;
  int32_t busy = 0;          // workers with work, also those that are silent for a while
  bool is_draining = false;  // none of those that are connected takes more work
  // Says how a worker differs from what was declared, if it has not what its provider promises.
  std::string mismatch = {};
};

// A part of the waiting jobs that the scheduler's own placement could run at once if one of these
// providers gave it so many pilots more. Parts do not overlap: if several jobs fit on one pilot,
// they are one lot.
struct Lot {
  std::map<std::string, int32_t> pilots;  // by provider; at least 1
};

struct Inputs {
  int64_t now_us = 0;
  std::map<std::string, ProviderNews> news = {};  // by provider
  std::vector<WorkerSight> workers = {};
  std::vector<Lot> demand = {};  // in the order of the queue
};

enum class DecisionKind {
  kSubmit,  // ask for the pilot
  kCancel,  // cancel `foreign_id`; repeated until it has ended
  kDrain,   // let the workers of the pilot take nothing more, if none of them has work; repeated
  kDropTokens,      // nobody joins with the tokens of the pilot any more
  kForget,          // drop the record of a pilot that has ended, and all that is left of it
  kForgetProvider,  // drop the record of a provider that was removed
  // These are news for people.
  kBreakerOpened,
  kBreakerHalfOpened,
  kBreakerClosed,
};

struct Decision {
  DecisionKind kind = DecisionKind::kSubmit;
  std::string provider = {};
  std::string pilot = {};       // its name, which may be unknown to us for kCancel
  std::string foreign_id = {};  // for kCancel
  std::string reason = {};      // a sentence for people

  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace trainyard::provision
