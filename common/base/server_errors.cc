// Every message says what can be done, since who cannot reach a server has nobody else to ask.
#include "common/base/server_errors.h"

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::error {

absl::Status NoServer(absl::string_view tried, absl::string_view advice) {
  return MakeError(absl::StatusCode::kUnavailable, "SERVER_UNREACHABLE",
                   absl::StrCat("no server answers", tried, "\n  ", advice));
}

absl::Status ServerNotAllowed(absl::string_view address, absl::string_view cause) {
  return MakeError(absl::StatusCode::kPermissionDenied, "SERVER_NOT_ALLOWED",
                   absl::StrCat("you are not allowed to use the server at '", address, "' (", cause,
                                "); ask its owner to open it to you, or use another server"));
}

absl::Status SshFailed(absl::StatusCode code, absl::string_view host, absl::string_view cause,
                       absl::string_view advice) {
  return MakeError(code, "SSH_FAILED",
                   absl::StrCat("ssh to '", host, "' failed: ", cause, "; ", advice));
}

}  // namespace trainyard::error
