// Looks at the processes and files of all ranks of this host, for signs that they do something.
#pragma once

#include "worker/program/idle_watch.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"

namespace trainyard::program {

// Looks at the ranks whose supervisor is the parent of this process.
Signs ReadSigns(const run_dir::RunDir& dir, const run_dir::Assignment& assignment);

}  // namespace trainyard::program
