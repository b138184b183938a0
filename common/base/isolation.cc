// Makes the errors of isolation.
#include "common/base/isolation.h"

#include "common/base/errors.h"

namespace trainyard::error {

absl::Status IsolationUnavailable(absl::string_view why) {
  return MakeError(absl::StatusCode::kNotFound, kIsolationUnavailable, why);
}

}  // namespace trainyard::error
