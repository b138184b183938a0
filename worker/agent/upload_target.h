// An attempt as the uploaders see it, and the server's refusals as they read them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

struct UploadTarget {
  AttemptId id;
  int64_t fencing_token = 0;
  run_dir::RunDir dir{""};
  std::vector<int> ranks;
  std::vector<int64_t> checkpoints;  // steps of the complete ones, as last seen
  bool exited = false;               // nothing is written any more
};

// True where the server refuses the stream for good: it does not know the attempt, or a newer one
// has taken its place. Trying again would change nothing.
bool IsRefusal(const absl::Status& status);

// The offset at which the server stands, from an OFFSET_MISMATCH; -1 for any other status.
int64_t ExpectedOffset(const absl::Status& status);

}  // namespace trainyard::agent
