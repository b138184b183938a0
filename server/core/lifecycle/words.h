// Defines the vocabulary of the core: enums, failures, times. No code in server/core reads a clock,
// uses protobuf or does I/O.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::core {

// The moment of an input, in microseconds. Wall time goes into records that people read. Uptime,
// which is monotonic and counts suspension, decides deadlines.
struct Now {
  int64_t wall_us = 0;
  int64_t uptime_us = 0;
};

inline constexpr int64_t kMillisecond = 1000;
inline constexpr int64_t kSecond = 1000 * kMillisecond;
inline constexpr int64_t kMinute = 60 * kSecond;
inline constexpr int64_t kHour = 60 * kMinute;

// Says why an attempt was stopped. kNone means that a rank failed and the others stop for that
// reason. kResize means that the attempt continues with more or fewer devices.
enum class StopReason { kNone, kCancel, kSuspend, kPreempt, kDrain, kTimeLimit, kResize };

enum class FailureClass { kNone, kUserError, kTransient, kHardware, kLost, kPoison };

// A failure of an attempt or a job. `reason` is UPPER_SNAKE_CASE or empty, and `message` is for
// people.
struct Failure {
  FailureClass failure_class = FailureClass::kNone;
  std::string reason;
  std::string message;
  int32_t exit_code = 0;  // of the rank that failed first, or 128 and its signal

  friend bool operator==(const Failure&, const Failure&) = default;
};

// Returns the text of a failure in the history, such as "HARDWARE GPU_LOST: Xid 79".
std::string FailureText(const Failure& failure);

// The state of what one worker has of an attempt. The devices of a part are held until it is
// kExited or later.
enum class PartState {
  kAssigned,  // placed; the worker has not reported it yet
  kStarting,
  kRunning,
  kStopping,
  // The process group is gone, but logs, metrics or checkpoints may still be on their way.
  kExited,
  kDrained,  // everything that its ranks have written has arrived
  kLost,     // declared lost: its worker was out of contact too long, or forgot it
};

// Returns true if a part in this state holds its devices.
bool HoldsDevices(PartState state);

// The state of an attempt as a worker reports it (SyncWorker).
enum class ObservedState { kStarting, kRunning, kStopping, kExited };

enum class OutcomeKind { kNone, kSucceeded, kStopped, kFailed };

enum class DeviceHealth { kOk, kQuarantined, kUnmanagedUse };

// An operator's decision about whether a worker gets new ranks.
enum class Scheduling { kEligible, kCordoned, kDraining };

// The precisions that `train.precision: auto` may become. kNone means that it was not decided.
enum class Precision { kNone, kF32, kBf16 };

// Says how strictly the ranks of an attempt are kept apart from their hosts. The levels are in
// order; kUnspecified means that it is not known.
enum class Isolation { kUnspecified, kProcess, kCgroup, kSandbox, kContainer };

// These convert to the words of the API without their prefix ("TIME_LIMIT"), as they are stored and
// shown, and back. They return INVALID_ARGUMENT with the word if it is unknown.
absl::string_view Text(StopReason value);
absl::string_view Text(FailureClass value);
absl::string_view Text(PartState value);
absl::string_view Text(ObservedState value);
absl::string_view Text(OutcomeKind value);
absl::string_view Text(DeviceHealth value);
absl::string_view Text(Scheduling value);
absl::string_view Text(Precision value);
absl::string_view Text(Isolation value);
absl::Status FromText(absl::string_view text, StopReason& value);
absl::Status FromText(absl::string_view text, FailureClass& value);
absl::Status FromText(absl::string_view text, PartState& value);
absl::Status FromText(absl::string_view text, ObservedState& value);
absl::Status FromText(absl::string_view text, OutcomeKind& value);
absl::Status FromText(absl::string_view text, DeviceHealth& value);
absl::Status FromText(absl::string_view text, Scheduling& value);
absl::Status FromText(absl::string_view text, Precision& value);
absl::Status FromText(absl::string_view text, Isolation& value);

}  // namespace trainyard::core
