// Finds the checkpoint from which a new job starts: one of the server, or one in a bucket, which
// the server takes in first.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/link/server_link.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Returns true for s3://...
bool IsInBucket(absl::string_view checkpoint);

// Resolves what --from names, as ResolveCheckpoint does. A checkpoint in a bucket becomes one of an
// imported job of this project, and is waited for.
absl::StatusOr<std::string> ResolveStart(const Context& context, link::ServerLink& link,
                                         const std::string& text, const std::string& project);

// Puts what --from names into the request, if `from` is not empty. A trial takes nothing from a
// bucket, and says so.
absl::Status TakeStart(const Context& context, link::ServerLink& link, const std::string& from,
                       v1::CreateJobRequest& request);

}  // namespace trainyard::commands
