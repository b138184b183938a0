// Defines an attempt as the uploaders see it, and reads the server's refusals.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "worker/agent/file_owner.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

// The outputs of an attempt are sent as a checkpoint of this step is.
inline constexpr int64_t kOutputsStep = -1;

struct UploadTarget {
  AttemptId id;
  int64_t fencing_token = 0;
  run_dir::RunDir dir{""};
  FileOwner owner = {};  // of the run directory
  std::vector<int> ranks;
  // The steps of the complete ones, as last seen, and kOutputsStep if the attempt has left outputs.
  std::vector<int64_t> checkpoints;
  bool exited = false;  // nothing is written any more
};

// Returns true if the server refuses the stream for good, because it does not know the attempt or a
// newer one has replaced it. Trying again would change nothing.
bool IsRefusal(const absl::Status& status);

// Returns the server's offset from an OFFSET_MISMATCH, or -1 for any other status.
int64_t ExpectedOffset(const absl::Status& status);

}  // namespace trainyard::agent
