// States which names the files of a checkpoint may have. Trainer, worker, server and client check
// them, since each takes names from another program and makes paths of them.
#pragma once

#include "absl/strings/string_view.h"

namespace trainyard {

// The file of a checkpoint that lists the others.
inline constexpr char kManifestName[] = "MANIFEST";

// Returns true for a plain name inside the folder: no path, not hidden, and not MANIFEST itself.
bool IsCheckpointFileName(absl::string_view name);

}  // namespace trainyard
