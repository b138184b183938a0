// Implements DeleteJob and DeleteJobData, which say what would be deleted, or delete it. The yard
// decides. The files are counted here, and removed by the app once the commit is on disk.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "server/core/yard/deletion.h"
#include "server/rpc/answers.h"
#include "server/rpc/job_service.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/verifications.h"

namespace trainyard::rpc {
namespace {

void FillFromPlan(const core::Yard& yard, const core::Deletion& plan,
                  v1::DeleteJobResponse& response) {
  response.set_checkpoints(
      std::count_if(plan.checkpoints.begin(), plan.checkpoints.end(),
                    [](const core::CheckpointRef& id) { return !id.is_outputs(); }));
  int64_t bytes = 0;
  for (const core::CheckpointRef& id : plan.checkpoints) bytes += yard.FindCheckpoint(id)->bytes();
  response.set_checkpoint_bytes(bytes);
  for (const core::CheckpointRef& id : plan.kept_checkpoints) {
    response.add_kept_checkpoints(CheckpointName(id.job, id.step));
  }
  response.set_kept_spec(plan.keeps_spec);
}

absl::Status CountEvents(Services& services, JobId job, v1::DeleteJobResponse& response) {
  int64_t events = 0;
  int64_t last = 0;
  for (bool is_over = false; !is_over;) {
    TY_ASSIGN_OR_RETURN(const auto page,
                        services.store.ListEvents(JobName(job), last, store::kEventPageMax));
    events += static_cast<int64_t>(page.size());
    is_over = page.empty();
    if (!is_over) last = page.back().sequence;
  }
  response.set_events(events);
  return absl::OkStatus();
}

// Blocks on the disk.
absl::Status CountFiles(Services& services, JobId job, const core::Deletion& plan,
                        v1::DeleteJobResponse& response) {
  if (plan.logs) {
    TY_ASSIGN_OR_RETURN(const int64_t log_bytes, services.logs.SizeOf(job));
    response.set_log_bytes(log_bytes);
  }
  if (plan.metrics) {
    TY_ASSIGN_OR_RETURN(const int64_t points, services.metrics.CountPoints(job));
    response.set_metric_points(points);
    TY_ASSIGN_OR_RETURN(const int64_t metric_bytes, services.metrics.SizeOf(job));
    response.set_metric_bytes(metric_bytes);
  }
  return plan.is_whole ? CountEvents(services, job, response) : absl::OkStatus();
}

core::JobParts PartsOf(const v1::DeleteJobDataRequest& request, RequestCheck& check) {
  core::JobParts parts;
  for (int i = 0; i < request.parts_size(); ++i) {
    switch (request.parts(i)) {
      case v1::JOB_PART_CHECKPOINTS:
        parts.checkpoints = true;
        break;
      case v1::JOB_PART_LOGS:
        parts.logs = true;
        break;
      case v1::JOB_PART_METRICS:
        parts.metrics = true;
        break;
      default:
        check.Add(absl::StrCat("parts[", i, "]"),
                  absl::StrCat(static_cast<int>(request.parts(i)), " is no part of a job"));
    }
  }
  if (request.parts().empty()) {
    check.Add("parts", "must be given: checkpoints, logs or metrics; DeleteJob deletes the job");
  }
  return parts;
}

grpc::ServerUnaryReactor* PlanAndDelete(Services& services, grpc::CallbackServerContext* context,
                                        const core::DeleteJob& input, bool is_trial,
                                        v1::DeleteJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto remove = [&services, reactor, response, input, is_trial](
                          const core::Deletion& plan, const std::vector<SecondRun>& lost) {
    KeepResults(RunSources(services), lost);
    const absl::Status counted = CountFiles(services, input.job, plan, *response);
    if (!counted.ok() || is_trial) return reactor->Finish(ToGrpcStatus(counted));
    services.runtime.Post(input, [reactor](const absl::StatusOr<core::Reply>& reply) {
      reactor->Finish(ToGrpcStatus(reply.status()));
    });
  };
  services.runtime.Read([&services, reactor, response, input, is_trial,
                         remove](absl::StatusOr<const core::Yard*> yard) {
    if (!yard.ok()) return reactor->Finish(ToGrpcStatus(yard.status()));
    const auto plan = (*yard)->PlanDeletion(input);
    if (!plan.ok() || plan->is_gone) return reactor->Finish(ToGrpcStatus(plan.status()));
    FillFromPlan(**yard, *plan, *response);
    std::vector<SecondRun> lost;
    if (!is_trial) lost = SecondRunsLostWith(services, **yard, input);
    const absl::Status posted = services.metric_reads.TryPost(
        [remove, plan = *plan, lost = std::move(lost)] { remove(plan, lost); });
    if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::DeleteJobRequest* request,
                                                    v1::DeleteJobResponse* response) {
  RequestCheck check;
  const core::DeleteJob input{check.Job("name", request->name()),
                              {.checkpoints = request->checkpoints_only()},
                              UserActor(caller.user)};
  if (!check.ok()) return Refused(context, check);
  return PlanAndDelete(services_, context, input, request->validate_only(), response);
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJobData(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::DeleteJobDataRequest* request,
                                                        v1::DeleteJobResponse* response) {
  RequestCheck check;
  const core::DeleteJob input{check.Job("name", request->name()), PartsOf(*request, check),
                              UserActor(caller.user)};
  if (!check.ok()) return Refused(context, check);
  return PlanAndDelete(services_, context, input, request->validate_only(), response);
}

}  // namespace trainyard::rpc
