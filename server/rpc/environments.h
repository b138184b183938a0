// Reads what the programs of attempts ran in, as their workers have told it.
#pragma once

#include <cstddef>

#include "server/runtime/log_store.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Returns the environment of an attempt's program, or an empty message if it is not known. `bytes`
// gets the size of what was read. This blocks on the disk.
v1::ProgramEnvironment ReadEnvironment(const runtime::LogStore& logs, AttemptId attempt,
                                       size_t& bytes);

}  // namespace trainyard::rpc
