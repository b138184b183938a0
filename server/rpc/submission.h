// Turns the requests that make jobs into inputs of the yard.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/yard/inputs.h"
#include "server/rpc/decisions.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"
#include "server/runtime/board.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/sweep_service.pb.h"

namespace trainyard::rpc {

// Makes the submission that a spec and the options beside it ask for. Violations go to `check`, and
// the result is then null. Returns NOT_FOUND if a job or a checkpoint does not exist, and
// PERMISSION_DENIED (NOT_A_MEMBER) if the caller may not submit to the project; `decisions` takes
// which of the two it is. With `is_trial` nothing will be submitted, so its code may still be
// missing.
absl::StatusOr<std::shared_ptr<core::Submission>> SubmissionOf(
    const v1::JobSpec& spec, const v1::SubmitOptions& options, const std::string& from_checkpoint,
    bool is_trial, const access::Caller& caller, Services& services, RequestCheck& check,
    Decisions& decisions);

// Returns PERMISSION_DENIED (NOT_A_MEMBER) if the caller may not submit to the project.
absl::Status CheckProject(const access::Caller& caller, const Services& services,
                          const core::Submission& submission);

// Does so for a CreateJob, and makes the input of the yard.
absl::StatusOr<core::SubmitJob> SubmissionOf(const v1::CreateJobRequest& request,
                                             const access::Caller& caller, Services& services,
                                             RequestCheck& check, Decisions& decisions);

// Does so for a CloneJob of `original`, and tells what differs from its resolved spec. The clone
// must train on the data on which the original trained, unless the changes concern the data.
struct Clone {
  core::SubmitJob input;
  std::vector<v1::SpecDifference> differences;
};
absl::StatusOr<Clone> CloneOf(const v1::CloneJobRequest& request, const runtime::JobView& original,
                              const access::Caller& caller, Services& services, RequestCheck& check,
                              Decisions& decisions);

// Returns what requests with the same meaning have in common, whatever their request_id is.
std::string HashOf(const v1::CreateJobRequest& request);
std::string HashOf(const v1::CloneJobRequest& request);
std::string HashOf(const v1::CreateSweepRequest& request);

// Returns a job that was only validated: resolved, with what would become of it, but without name
// and state.
v1::Job PreviewOf(const core::Submission& submission, const v1::Explanation& explanation);

}  // namespace trainyard::rpc
