// Lists checkpoints and streams their files.
#include "server/rpc/checkpoint_service.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/download.h"
#include "server/rpc/request.h"
#include "server/rpc/streams.h"
#include "server/rpc/verify_checkpoint.h"

namespace trainyard::rpc {
namespace {

// Returns true if the newest attempt runs, or its worker has not sent everything yet.
bool IsPending(const runtime::JobView& view) {
  if (view.attempt == nullptr) return false;
  const std::vector<core::AttemptPart>& parts = view.attempt->parts;
  return std::any_of(parts.begin(), parts.end(), [](const core::AttemptPart& part) {
    return part.state != core::PartState::kDrained && part.state != core::PartState::kLost;
  });
}

// Adds the newest point of each series at or before the checkpoint's step.
void AddMetrics(const store::MetricSeries& evaluations, v1::Checkpoint& checkpoint) {
  for (const auto& [name, points] : evaluations) {
    const auto later = std::upper_bound(
        points.begin(), points.end(), checkpoint.step(),
        [](int64_t step, const store::StoredPoint& stored) { return step < stored.point.step; });
    if (later == points.begin()) continue;
    (*checkpoint.mutable_metrics())[name] = std::prev(later)->point.value;
  }
}

// Marks the best checkpoint of the job, if it is one of these.
void MarkBest(const runtime::Board& board, JobId job,
              const std::vector<v1::Checkpoint*>& checkpoints) {
  const auto view = board.FindJob(job);
  if (view == nullptr) return;
  const auto records = board.CheckpointsOf(job);
  const core::CheckpointRecord* best = core::BestCheckpoint(*view->record.submission, records);
  if (best == nullptr) return;
  for (v1::Checkpoint* checkpoint : checkpoints) {
    checkpoint->set_is_best(checkpoint->step() == best->id.step);
  }
}

// Adds what is known of these checkpoints of one job from its metrics, then answers. They live in
// the call's response.
grpc::ServerUnaryReactor* FinishWithMetrics(grpc::CallbackServerContext* context,
                                            Services& services, JobId job,
                                            std::vector<v1::Checkpoint*> checkpoints) {
  MarkBest(services.board, job, checkpoints);
  return FinishAfter(context, services.metric_reads,
                     [&services, job, checkpoints = std::move(checkpoints)]() -> absl::Status {
                       TY_ASSIGN_OR_RETURN(
                           const auto evaluations,
                           services.metrics.Query(job, {"test.accuracy", "test.loss"}, {}));
                       for (v1::Checkpoint* checkpoint : checkpoints)
                         AddMetrics(evaluations, *checkpoint);
                       return absl::OkStatus();
                     });
}

}  // namespace

CheckpointServiceImpl::CheckpointServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* CheckpointServiceImpl::ListCheckpoints(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::ListCheckpointsRequest* request, v1::ListCheckpointsResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("parent", request->parent());
  if (!check.ok()) return Refused(context, check);
  if (const auto view = FindJob(services_.board, job); !view.ok()) {
    return Finished(context, view.status());
  }
  for (const auto& checkpoint : services_.board.CheckpointsOf(job)) {
    *response->add_checkpoints() = ToProto(*checkpoint);
  }
  auto& added = *response->mutable_checkpoints();
  return FinishWithMetrics(context, services_, job, {added.pointer_begin(), added.pointer_end()});
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::GetCheckpoint(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::GetCheckpointRequest* request, v1::Checkpoint* response) {
  RequestCheck check;
  const CheckpointId id = check.Checkpoint("name", request->name());
  if (!check.ok()) return Refused(context, check);
  const auto checkpoint = services_.board.FindCheckpoint({id.job, id.step});
  if (checkpoint == nullptr) {
    return Finished(context, error::CheckpointNotFound(request->name()));
  }
  *response = ToProto(*checkpoint);
  return FinishWithMetrics(context, services_, id.job, {response});
}

grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* CheckpointServiceImpl::DownloadCheckpoint(
    const access::Caller& caller, const v1::DownloadCheckpointRequest* request) {
  return StartDownload(services_, OwnerOf(caller), *request);
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::GetOutputs(const access::Caller&,
                                                            grpc::CallbackServerContext* context,
                                                            const v1::GetOutputsRequest* request,
                                                            v1::Outputs* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  if (!check.ok()) return Refused(context, check);
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());
  response->set_is_pending(IsPending(**view));
  if (const auto outputs = services_.board.FindCheckpoint({job, core::kOutputsStep})) {
    const v1::Checkpoint shown = ToProto(*outputs);
    response->set_attempt(shown.attempt());
    *response->mutable_files() = shown.files();
    *response->mutable_create_time() = shown.create_time();
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* CheckpointServiceImpl::DownloadOutput(
    const access::Caller& caller, const v1::DownloadOutputRequest* request) {
  return StartOutputDownload(services_, OwnerOf(caller), *request);
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::VerifyCheckpoint(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::VerifyCheckpointRequest* request, v1::Checkpoint* response) {
  return StartVerification(context, services_, *request, response);
}

}  // namespace trainyard::rpc
