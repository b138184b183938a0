// Says whose the other end of a connection of this machine is.
#pragma once

#include <sys/types.h>

#include <optional>

#include "absl/strings/string_view.h"

namespace trainyard::web {

// Returns the user who has the other end of a connection of TCP over IPv4 on this machine, as the
// kernel lists it in /proc/net/tcp. Returns nothing if it is not listed, so that nobody knows.
std::optional<uid_t> OwnerOfOtherEnd(int fd);

// Finds in a table of that form the socket with these addresses, both as the table writes them:
// "0100007F:1F90".
std::optional<uid_t> OwnerIn(absl::string_view table, absl::string_view local,
                             absl::string_view remote);

}  // namespace trainyard::web
