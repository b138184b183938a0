// Reads the server's refusals and offsets out of a status.
#include "worker/agent/upload_target.h"

#include "absl/strings/numbers.h"
#include "common/base/errors.h"

namespace trainyard::agent {

bool IsRefusal(const absl::Status& status) {
  if (ErrorReason(status) == "UNKNOWN_SESSION") return false;
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:  // STALE_FENCING_TOKEN
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

int64_t ExpectedOffset(const absl::Status& status) {
  if (ErrorReason(status) != "OFFSET_MISMATCH") return -1;
  int64_t offset = 0;
  const auto metadata = GetErrorMetadata(status);
  const auto found = metadata.find(error::kExpectedOffset);
  if (found == metadata.end() || !absl::SimpleAtoi(found->second, &offset) || offset < 0) {
    return -1;
  }
  return offset;
}

}  // namespace trainyard::agent
