// States which names the files of a checkpoint and the outputs of a job may have. Trainer, worker,
// server and client check them, since each takes names from another program and makes paths of
// them.
#pragma once

#include "absl/strings/string_view.h"

namespace trainyard {

// The file of a checkpoint that lists the others.
inline constexpr char kManifestName[] = "MANIFEST";

// A checkpoint has at most as many files, and so have the outputs of an attempt.
inline constexpr int kCheckpointFilesMax = 1000;
// A name has at most as many bytes, with its folders.
inline constexpr size_t kFileNameBytesMax = 512;

// Returns true for a name inside the folder, which may have folders before it ("optimizer/0.pt"):
// printable UTF-8, with nothing hidden in it, and not MANIFEST itself. Only `.metadata` may be
// hidden, because torch.distributed.checkpoint names a file so.
bool IsCheckpointFileName(absl::string_view name);

}  // namespace trainyard
