// Turns every error into an exit code, in this one place.
#include "client/link/exit_code.h"

#include "common/base/errors.h"

namespace trainyard::link {

ExitCode ExitCodeOf(const absl::Status& status) {
  // A state directory or an address that is taken is a conflict, whatever status code it comes
  // with.
  const std::string reason = ErrorReason(status);
  if (reason == "STATE_LOCKED" || reason == "ADDRESS_IN_USE") return kConflict;
  // Other limits than quotas have the same status code. A server that is busy answers soon.
  if (reason == "QUOTA_EXCEEDED") return kQuota;
  if (reason == "SERVER_BUSY") return kUnreachable;
  if (reason == "JOB_ENDED_BADLY") return kJobEndedBadly;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kUnauthenticated:
      return kNotSignedIn;
    case absl::StatusCode::kPermissionDenied:
      return kNotAllowed;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return kConflict;
    case absl::StatusCode::kUnavailable:
      // Errors of this machine, such as a path that leads through a file, have no reason.
      return reason.empty() ? kFailed : kUnreachable;
    case absl::StatusCode::kDeadlineExceeded:
      return kTimedOut;
    case absl::StatusCode::kCancelled:
      return kInterrupted;
    default:
      return kFailed;
  }
}

}  // namespace trainyard::link
