// The vocabulary of the core: enums, failures, times. Nothing in server/core reads a clock, knows
// of protobuf or does I/O.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::core {

// The moment of an input. Wall time goes into records that people read; uptime (monotonic, counting
// suspension) decides deadlines. Both in microseconds.
struct Now {
  int64_t wall_us = 0;
  int64_t uptime_us = 0;
};

inline constexpr int64_t kMillisecond = 1000;
inline constexpr int64_t kSecond = 1000 * kMillisecond;
inline constexpr int64_t kMinute = 60 * kSecond;
inline constexpr int64_t kHour = 60 * kMinute;

// Why an attempt was stopped. kNone stands for a rank that failed, so that the others go too;
// kResize for an attempt that goes on with more or fewer devices.
enum class StopReason { kNone, kCancel, kSuspend, kPreempt, kDrain, kTimeLimit, kResize };

enum class FailureClass { kNone, kUserError, kTransient, kHardware, kLost, kPoison };

// How an attempt or a job failed. `reason` is UPPER_SNAKE_CASE or empty, `message` is for people.
struct Failure {
  FailureClass failure_class = FailureClass::kNone;
  std::string reason;
  std::string message;

  friend bool operator==(const Failure&, const Failure&) = default;
};

// "HARDWARE GPU_LOST: Xid 79": how a failure reads in the history.
std::string FailureText(const Failure& failure);

// What one worker has of an attempt. Devices of a part are held until it is kExited or later.
enum class PartState {
  kAssigned,  // placed; the worker has not reported it yet
  kStarting,
  kRunning,
  kStopping,
  kExited,   // the process group is gone; logs, metrics or checkpoints may still be on their way
  kDrained,  // everything of it has arrived
  kLost,     // declared lost: its worker was away for too long, or has forgotten it
};

// True if a part in this state holds its devices.
bool HoldsDevices(PartState state);

// What a worker says about an attempt (SyncWorker).
enum class ObservedState { kStarting, kRunning, kStopping, kExited };

enum class OutcomeKind { kNone, kSucceeded, kStopped, kFailed };

enum class DeviceHealth { kOk, kQuarantined, kUnmanagedUse };

// An operator's word on whether a worker gets new ranks.
enum class Scheduling { kEligible, kCordoned, kDraining };

// The words of the API without their prefix ("TIME_LIMIT"), as stored and shown; and back.
// INVALID_ARGUMENT with the word otherwise.
absl::string_view Text(StopReason value);
absl::string_view Text(FailureClass value);
absl::string_view Text(PartState value);
absl::string_view Text(ObservedState value);
absl::string_view Text(OutcomeKind value);
absl::string_view Text(DeviceHealth value);
absl::string_view Text(Scheduling value);
absl::Status FromText(absl::string_view text, StopReason& value);
absl::Status FromText(absl::string_view text, FailureClass& value);
absl::Status FromText(absl::string_view text, PartState& value);
absl::Status FromText(absl::string_view text, ObservedState& value);
absl::Status FromText(absl::string_view text, OutcomeKind& value);
absl::Status FromText(absl::string_view text, DeviceHealth& value);
absl::Status FromText(absl::string_view text, Scheduling& value);

}  // namespace trainyard::core
