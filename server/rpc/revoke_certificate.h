// Revokes certificates of workers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/rpc/services.h"

namespace trainyard::rpc {

// Refuses all certificates that the worker has, ends its connections, and lets it not join again
// with an invitation that it has used up. It blocks on the disk. If that fails, the certificates
// are refused until the server ends.
absl::Status RevokeCertificates(Services& services, const std::string& worker);

}  // namespace trainyard::rpc
