// Implements DeleteJob, which says what would be deleted, or deletes it. The yard decides. The
// files are counted here, and removed by the app once the commit is on disk.
#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "server/core/yard/deletion.h"
#include "server/rpc/job_service.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

void FillFromPlan(const core::Yard& yard, const core::Deletion& plan,
                  v1::DeleteJobResponse& response) {
  response.set_checkpoints(static_cast<int64_t>(plan.checkpoints.size()));
  int64_t bytes = 0;
  for (const core::CheckpointRef& id : plan.checkpoints) {
    for (const core::CheckpointFile& file : yard.FindCheckpoint(id)->files) bytes += file.size;
  }
  response.set_checkpoint_bytes(bytes);
  for (const core::CheckpointRef& id : plan.kept_checkpoints) {
    response.add_kept_checkpoints(CheckpointName(id.job, id.step));
  }
  response.set_kept_spec(plan.keeps_spec);
}

// Blocks on the disk.
absl::Status CountFiles(Services& services, JobId job, v1::DeleteJobResponse& response) {
  TY_ASSIGN_OR_RETURN(const int64_t log_bytes, services.logs.SizeOf(job));
  TY_ASSIGN_OR_RETURN(const int64_t points, services.metrics.CountPoints(job));
  response.set_log_bytes(log_bytes);
  response.set_metric_points(points);
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

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::DeleteJobRequest* request,
                                                    v1::DeleteJobResponse* response) {
  RequestCheck check;
  core::DeleteJob input{check.Job("name", request->name()), request->checkpoints_only(),
                        UserActor(caller.user)};
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!check.ok()) {
    reactor->Finish(ToGrpcStatus(check.Take()));
    return reactor;
  }
  const auto remove = [this, reactor, request, response, input] {
    const absl::Status counted =
        input.checkpoints_only ? absl::OkStatus() : CountFiles(services_, input.job, *response);
    if (!counted.ok() || request->validate_only()) return reactor->Finish(ToGrpcStatus(counted));
    services_.runtime.Post(input, [reactor](const absl::StatusOr<core::Reply>& reply) {
      reactor->Finish(ToGrpcStatus(reply.status()));
    });
  };
  services_.runtime.Read(
      [this, reactor, response, input, remove](absl::StatusOr<const core::Yard*> yard) {
        if (!yard.ok()) return reactor->Finish(ToGrpcStatus(yard.status()));
        const auto plan = (*yard)->PlanDeletion(input);
        if (!plan.ok() || plan->is_gone) return reactor->Finish(ToGrpcStatus(plan.status()));
        FillFromPlan(**yard, *plan, *response);
        const absl::Status posted = services_.metric_reads.TryPost(remove);
        if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
      });
  return reactor;
}

}  // namespace trainyard::rpc
