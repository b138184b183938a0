// The messages say what to do, because most people meet them with their first job.
#include "common/base/code_errors.h"

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::error {

absl::Status CodeTooLarge(absl::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted, kCodeTooLarge,
                   absl::StrCat("the code is too large: ", what));
}

absl::Status CodeNotFound(absl::string_view what) {
  return MakeError(absl::StatusCode::kNotFound, kCodeNotFound, what);
}

absl::Status CodeRefused(absl::string_view why) {
  return MakeError(absl::StatusCode::kInvalidArgument, kCodeRefused,
                   absl::StrCat("the code of the job cannot be unpacked: ", why));
}

}  // namespace trainyard::error
