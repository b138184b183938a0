// Connects to Unix sockets without gRPC, to find out which of several servers is there, and to
// carry the bytes of a client elsewhere.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/files.h"

namespace trainyard::link {

// Connects to the socket of an address such as "unix:/run/trainyard/trainyard.sock". Returns
// SERVER_UNREACHABLE if nobody listens there, SERVER_NOT_ALLOWED if the user may not connect, and
// INVALID_ARGUMENT for another kind of address.
absl::StatusOr<UniqueFd> ConnectUnixSocket(absl::string_view address);

// A place where a server may be.
struct Candidate {
  std::string what;     // such as "your own server"
  std::string address;  // "unix:/path"
};

// A candidate that answered, and its connection.
struct Found {
  Candidate candidate;
  UniqueFd fd;
};

// Returns the first candidate at which somebody listens, or the error of one that forbids it. If
// there is none, returns SERVER_UNREACHABLE with everything that was tried and what to do.
absl::StatusOr<Found> FindServer(const std::vector<Candidate>& candidates,
                                 absl::string_view advice);

}  // namespace trainyard::link
