// Turns the requests that make jobs into inputs of the yard.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/yard/inputs.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"
#include "server/runtime/board.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// The submission that a spec and the options beside it ask for. Violations go to `check`; then the
// result is null. NOT_FOUND for a job or a checkpoint that is not there.
absl::StatusOr<std::shared_ptr<core::Submission>> SubmissionOf(
    const v1::JobSpec& spec, const v1::SubmitOptions& options, const std::string& from_checkpoint,
    const std::string& user, Services& services, RequestCheck& check);

// Resolves the spec of CreateJob and writes the submission down. Violations go to `check`; then the
// result is null. NOT_FOUND for a checkpoint that is not there.
absl::StatusOr<core::SubmitJob> SubmissionOf(const v1::CreateJobRequest& request,
                                             const std::string& user, Services& services,
                                             RequestCheck& check);

// Does so for a CloneJob of `original`, and tells what differs from its resolved spec. The clone
// must train on the data that the original trained on, where the changes leave the data alone.
struct Clone {
  core::SubmitJob input;
  std::vector<v1::SpecDifference> differences;
};
absl::StatusOr<Clone> CloneOf(const v1::CloneJobRequest& request, const runtime::JobView& original,
                              const std::string& user, Services& services, RequestCheck& check);

// A job that was validated only: resolved, with what would become of it, without name and state.
v1::Job PreviewOf(const core::Submission& submission, const v1::Explanation& explanation);

}  // namespace trainyard::rpc
