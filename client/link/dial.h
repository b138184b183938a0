// Says how the two ends of an ssh connection talk before they carry gRPC: `trainyard dial-stdio`,
// which ssh runs on the server's host, says in one line whether it has found a server there. The
// shell of the account may print something before, which is skipped.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::link {

// The shell may print so much before the greeting.
inline constexpr size_t kNoiseBytesMax = size_t{64} << 10;

// Returns the line that says that this server was found, or why there is none.
std::string GreetingLine(const absl::StatusOr<std::string>& server);

struct Greeting {
  // The address of the server on its host, or why there is none.
  absl::StatusOr<std::string> server;
  // The number of bytes up to the end of the greeting. Those behind it belong to the server.
  size_t bytes = 0;
};

// Finds the greeting in what was received so far. Returns nothing if it has not come yet.
std::optional<Greeting> FindGreeting(absl::string_view received);

// Carries bytes between the server's socket and standard input and output, until either ends.
void CarryStdio(int server, int in, int out);

}  // namespace trainyard::link
