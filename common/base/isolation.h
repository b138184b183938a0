// Names the failures of keeping a job apart from the rest of its host, and the labels by which
// workers say what they can do.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// The labels of workers, by which the server places jobs that ask for a level of isolation. The
// value is kIsolationYes.
inline constexpr char kCgroupLabel[] = "isolation.cgroup";
inline constexpr char kSandboxLabel[] = "isolation.sandbox";
inline constexpr char kContainerLabel[] = "isolation.container";
inline constexpr char kIsolationYes[] = "yes";

// The names of the control groups of attempts begin so: "trainyard-<worker>-<job>-<attempt>".
inline constexpr char kAttemptGroupPrefix[] = "trainyard-";

namespace error {

// OUT_OF_MEMORY: a rank used more memory than it may; ask for more with resources.memory, or let
// the program use less. It is not tried again.
inline constexpr char kOutOfMemory[] = "OUT_OF_MEMORY";
// ISOLATION_UNAVAILABLE: the worker cannot give the level that program.isolation asks for. Install
// what the message names on its host, and restart its daemon.
inline constexpr char kIsolationUnavailable[] = "ISOLATION_UNAVAILABLE";
absl::Status IsolationUnavailable(absl::string_view why);
// ISOLATION_FAILED: the sandbox or the container of a program could not be made, so the program did
// not begin. The message is that of the program that makes it. The attempt is tried again.
inline constexpr char kIsolationFailed[] = "ISOLATION_FAILED";

}  // namespace error
}  // namespace trainyard
