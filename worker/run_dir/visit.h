// Names the file whose time says when a user was last connected to a rank (idle_limit).
#pragma once

#include <string>

#include "common/base/files.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

// Returns the path of control/visit. The worker writes it, and trainyard-program looks at its time.
inline std::string VisitPath(const RunDir& dir) {
  return JoinPath(dir.ControlDir(), "visit");
}

}  // namespace trainyard::run_dir
