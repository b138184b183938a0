// The errors of a client that looks for a server: where it has looked, and who has refused it.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::error {

// SERVER_UNREACHABLE: there is no server at any of the places where one is looked for. `tried` has
// a line for each of them; `advice` says what to do.
absl::Status NoServer(absl::string_view tried, absl::string_view advice);
// SERVER_NOT_ALLOWED: the server's socket is not open to this user; ask its owner, who may open it.
absl::Status ServerNotAllowed(absl::string_view address, absl::string_view cause);
// SSH_FAILED: ssh could not connect, or was refused (PERMISSION_DENIED); what `ssh HOST` by hand
// needs, this needs too. `advice` says what may help.
absl::Status SshFailed(absl::StatusCode code, absl::string_view host, absl::string_view cause,
                       absl::string_view advice);

}  // namespace trainyard::error
