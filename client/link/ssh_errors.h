// Turns what ssh wrote before it ended into an error that says what to do.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/link/ssh_address.h"

namespace trainyard::link {

// Says when ssh has ended.
enum class SshPhase { kConnecting, kCarrying };

// Returns SSH_FAILED, or SERVER_UNREACHABLE if ssh did its work until the server closed the
// connection. The code is PERMISSION_DENIED if another try would be refused in the same way, and
// UNAVAILABLE otherwise. `written` is what ssh wrote to stderr.
absl::Status SshError(const SshAddress& address, SshPhase phase, int exit_code,
                      absl::string_view written);

}  // namespace trainyard::link
