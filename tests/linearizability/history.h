// Holds what the users of a job service did and saw, with the times of every call and return.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/linearizability/search.h"

namespace trainyard::linearizability {

// The state of a job as its users can tell it apart.
enum class Phase : uint8_t {
  kAbsent,  // not submitted yet
  kQueued,
  kStarting,
  kRunning,
  kStoppingToCancel,
  kStoppingToSuspend,
  kStoppingToQueue,
  kSuspended,
  kSucceeded,
  kFailed,
  kCancelled,
  kDeleted,
};
inline constexpr int kPhases = 12;
const char* Name(Phase phase);

enum class Verb {
  kCreate,
  kClone,
  kCancel,
  kSuspend,
  kResume,
  kDelete,
  kGet,
  kList,
  kWatched,  // one message of a watch
};
const char* Name(Verb verb);

enum class Answer {
  kUnknown,  // the connection broke: the operation may have happened, or may still happen
  kDone,
  kRefused,  // the job's state does not permit it
  kMissing,  // there is no such job
};
const char* Name(Answer answer);

// A job as an answer showed it. A deletion that a watch reports has no revision.
struct Sighting {
  int64_t job = 0;
  Phase phase = Phase::kQueued;
  int64_t revision = 0;      // of its last change
  std::string request = {};  // the label of the submission that made it
  bool runs = false;         // it can be placed, so its state changes by itself
};

// Operations are recorded when they have returned. Times are of CLOCK_MONOTONIC, in nanoseconds.
struct Operation {
  Verb verb = Verb::kGet;
  int client = 0;
  int64_t call = 0;
  int64_t end = kNever;  // stays so while the answer is kUnknown
  // The number of the job that was named; for kClone that of the original.
  int64_t job = 0;
  // The label of a submission, which a repeated one shares. The job carries it in its name.
  std::string request = {};
  Answer answer = Answer::kUnknown;
  // The jobs of the answer. That of a kList is complete: all other jobs were absent.
  std::vector<Sighting> seen = {};
  // The number of the stream, whose messages come in their order; its call is the stream's.
  int64_t stream = 0;
};

using History = std::vector<Operation>;

// One line for people.
std::string Text(const Operation& operation);

}  // namespace trainyard::linearizability
