// Makes this process one beside the program of a rank. Every step either succeeds or ends it:
// nothing is executed outside of the isolation of the rank, or with other rights than its owner's.
//
// The order matters. The control group is joined first, since the owner may not be permitted to.
// Then all rights but the owner's are given up, for good. Only then the namespaces are entered, so
// that a process cannot lead this one, as root, to where its owner could not go.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "worker/enter/command_line.h"
#include "worker/enter/target.h"

namespace trainyard::enter {

// Finds the target with the rights of the owner, and takes those of the daemon back.
absl::StatusOr<Target> LookAsOwner(const Request& request);

// Joins the control group, takes over limits and processors, becomes the owner, and enters the
// namespaces and the root of the target. This process has one thread. A process that it starts
// afterwards is in the target's namespace of processes, while this one is not.
absl::Status Enter(const Target& target, const Request& request);

// Executes the command in the folder and the environment of the target, in a session of its own: on
// a new terminal whose other end goes to the daemon, or on the descriptors 0, 1 and 2. It tells the
// daemon, and does not return.
[[noreturn]] void Execute(const Target& target, const Request& request);

// Connects to the port on the loopback, IPv4 before IPv6. Returns UNAVAILABLE if nothing listens
// there.
absl::StatusOr<UniqueFd> ConnectToPort(int port);

}  // namespace trainyard::enter
