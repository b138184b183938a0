// Spells the enums as words. The words are stored, so a word never changes.
#include "server/core/lifecycle/words.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::core {
namespace {

// Each enum has one table, which serves both directions.
template <typename Enum>
struct Word {
  Enum value;
  absl::string_view text;
};

constexpr Word<StopReason> kStopReasons[] = {
    {StopReason::kNone, "NONE"},       {StopReason::kCancel, "CANCEL"},
    {StopReason::kSuspend, "SUSPEND"}, {StopReason::kPreempt, "PREEMPT"},
    {StopReason::kDrain, "DRAIN"},     {StopReason::kTimeLimit, "TIME_LIMIT"},
    {StopReason::kResize, "RESIZE"},
};
constexpr Word<FailureClass> kFailureClasses[] = {
    {FailureClass::kNone, "NONE"},           {FailureClass::kUserError, "USER_ERROR"},
    {FailureClass::kTransient, "TRANSIENT"}, {FailureClass::kHardware, "HARDWARE"},
    {FailureClass::kLost, "LOST"},           {FailureClass::kPoison, "POISON"},
};
constexpr Word<PartState> kPartStates[] = {
    {PartState::kAssigned, "ASSIGNED"}, {PartState::kStarting, "STARTING"},
    {PartState::kRunning, "RUNNING"},   {PartState::kStopping, "STOPPING"},
    {PartState::kExited, "EXITED"},     {PartState::kDrained, "DRAINED"},
    {PartState::kLost, "LOST"},
};
constexpr Word<ObservedState> kObservedStates[] = {
    {ObservedState::kStarting, "STARTING"},
    {ObservedState::kRunning, "RUNNING"},
    {ObservedState::kStopping, "STOPPING"},
    {ObservedState::kExited, "EXITED"},
};
constexpr Word<OutcomeKind> kOutcomeKinds[] = {
    {OutcomeKind::kNone, "NONE"},
    {OutcomeKind::kSucceeded, "SUCCEEDED"},
    {OutcomeKind::kStopped, "STOPPED"},
    {OutcomeKind::kFailed, "FAILED"},
};
constexpr Word<DeviceHealth> kDeviceHealths[] = {
    {DeviceHealth::kOk, "OK"},
    {DeviceHealth::kQuarantined, "QUARANTINED"},
    {DeviceHealth::kUnmanagedUse, "UNMANAGED_USE"},
};
constexpr Word<Scheduling> kSchedulings[] = {
    {Scheduling::kEligible, "ELIGIBLE"},
    {Scheduling::kCordoned, "CORDONED"},
    {Scheduling::kDraining, "DRAINING"},
};
constexpr Word<Precision> kPrecisions[] = {
    {Precision::kNone, "NONE"},
    {Precision::kF32, "F32"},
    {Precision::kBf16, "BF16"},
};
constexpr Word<Isolation> kIsolations[] = {
    {Isolation::kUnspecified, "UNSPECIFIED"}, {Isolation::kProcess, "PROCESS"},
    {Isolation::kCgroup, "CGROUP"},           {Isolation::kSandbox, "SANDBOX"},
    {Isolation::kContainer, "CONTAINER"},
};

template <typename Enum, size_t kCount>
absl::string_view Find(const Word<Enum> (&words)[kCount], Enum value) {
  for (const Word<Enum>& word : words) {
    if (word.value == value) return word.text;
  }
  CheckFailed(__FILE__, __LINE__, absl::StrCat("no word for enum value ", static_cast<int>(value)));
}

template <typename Enum, size_t kCount>
absl::Status Parse(const Word<Enum> (&words)[kCount], absl::string_view text, Enum& value) {
  for (const Word<Enum>& word : words) {
    if (word.text == text) {
      value = word.value;
      return absl::OkStatus();
    }
  }
  std::string expected;
  for (const Word<Enum>& word : words) {
    absl::StrAppend(&expected, expected.empty() ? "" : ", ", word.text);
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is none of ", expected));
}

}  // namespace

absl::string_view Text(StopReason value) {
  return Find(kStopReasons, value);
}
absl::string_view Text(FailureClass value) {
  return Find(kFailureClasses, value);
}
absl::string_view Text(PartState value) {
  return Find(kPartStates, value);
}
absl::string_view Text(ObservedState value) {
  return Find(kObservedStates, value);
}
absl::string_view Text(OutcomeKind value) {
  return Find(kOutcomeKinds, value);
}
absl::string_view Text(DeviceHealth value) {
  return Find(kDeviceHealths, value);
}
absl::string_view Text(Scheduling value) {
  return Find(kSchedulings, value);
}
absl::string_view Text(Precision value) {
  return Find(kPrecisions, value);
}
absl::string_view Text(Isolation value) {
  return Find(kIsolations, value);
}

absl::Status FromText(absl::string_view text, StopReason& value) {
  return Parse(kStopReasons, text, value);
}
absl::Status FromText(absl::string_view text, FailureClass& value) {
  return Parse(kFailureClasses, text, value);
}
absl::Status FromText(absl::string_view text, PartState& value) {
  return Parse(kPartStates, text, value);
}
absl::Status FromText(absl::string_view text, ObservedState& value) {
  return Parse(kObservedStates, text, value);
}
absl::Status FromText(absl::string_view text, OutcomeKind& value) {
  return Parse(kOutcomeKinds, text, value);
}
absl::Status FromText(absl::string_view text, DeviceHealth& value) {
  return Parse(kDeviceHealths, text, value);
}
absl::Status FromText(absl::string_view text, Scheduling& value) {
  return Parse(kSchedulings, text, value);
}
absl::Status FromText(absl::string_view text, Precision& value) {
  return Parse(kPrecisions, text, value);
}
absl::Status FromText(absl::string_view text, Isolation& value) {
  return Parse(kIsolations, text, value);
}

std::string FailureText(const Failure& failure) {
  std::string text = absl::StrCat(Text(failure.failure_class));
  if (!failure.reason.empty()) absl::StrAppend(&text, " ", failure.reason);
  if (!failure.message.empty()) absl::StrAppend(&text, ": ", failure.message);
  return text;
}

bool HoldsDevices(PartState state) {
  switch (state) {
    case PartState::kAssigned:
    case PartState::kStarting:
    case PartState::kRunning:
    case PartState::kStopping:
      return true;
    case PartState::kExited:
    case PartState::kDrained:
    case PartState::kLost:
      return false;
  }
  return false;
}

}  // namespace trainyard::core
