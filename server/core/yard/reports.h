// Applies a worker's report to the parts of the attempts that run there. Reports are absolute:
// repeating one changes nothing.
#pragma once

#include "absl/status/status.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// Applies a report. Returns UNKNOWN_SESSION if the session has ended, or if its worker is
// UNREACHABLE and does not show that it hears; the worker must then register again.
absl::Status TakeReport(YardState& state, const SyncReport& report, Now now);

}  // namespace trainyard::core
