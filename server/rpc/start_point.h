// Finds the checkpoint of another job from which a new job starts: the one whose training it
// continues (`from_checkpoint`), or the one whose weights it begins with (`init.job`).
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/core/lifecycle/submission.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::rpc {

struct StartPoint {
  // The checkpoints are never both set.
  std::optional<core::CheckpointRef> continues;
  std::optional<core::CheckpointRef> weights;

  bool is_set() const { return continues.has_value() || weights.has_value(); }
};

// Finds the start of a job, and writes into `resolved` exactly what it is: the checkpoint's name,
// and for initial weights the hash of their file. `from_checkpoint` is that of the request, which
// counts in place of the one in the spec. Violations go to `check`: weights that do not fit the
// model, and a checkpoint after which nothing is left to train. Returns NOT_FOUND if there is no
// such job or checkpoint, or if `caller` may not see it.
absl::StatusOr<StartPoint> TakeStartPoint(const std::string& from_checkpoint,
                                          const access::Caller& caller, const Services& services,
                                          v1::JobSpec& resolved, RequestCheck& check);

}  // namespace trainyard::rpc
