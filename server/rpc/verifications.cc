// Gathers what is recorded of two runs.
#include "server/rpc/verifications.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/environments.h"
#include "server/rpc/gate.h"
#include "server/rpc/job_service.h"
#include "server/rpc/limits.h"
#include "server/rpc/remarks.h"
#include "server/rpc/request.h"
#include "server/verification/compare.h"

namespace trainyard::rpc {
namespace {

bool HasEnded(const core::JobRecord& job) {
  return core::job_fsm::IsFinal(job.state);
}

bool IsKept(const Services& services, const SecondRun& run) {
  const auto remarks = RemarksOn(services.remarks, run.first->record);
  return remarks != nullptr && remarks->verifications.contains(run.second->record.id);
}

std::vector<std::string> DeviceTypes(const core::Yard& yard, const runtime::JobView& view) {
  std::vector<std::string> types;
  if (view.attempt == nullptr) return types;
  for (const core::RankPlacement& rank : view.attempt->ranks) {
    if (rank.device.empty()) continue;
    const core::WorkerRecord* worker = yard.FindWorker(rank.worker);
    // A worker that was forgotten has left no types.
    std::string type = "unknown";
    for (size_t i = 0; worker != nullptr && i < worker->devices.size(); ++i) {
      if (worker->devices[i].name == rank.device) type = worker->devices[i].type;
    }
    types.push_back(std::move(type));
  }
  std::sort(types.begin(), types.end());
  return types;
}

SecondRun RunOf(const core::Yard& yard, std::shared_ptr<const runtime::JobView> first,
                std::shared_ptr<const runtime::JobView> second) {
  SecondRun run;
  run.first_devices = DeviceTypes(yard, *first);
  run.second_devices = DeviceTypes(yard, *second);
  run.first = std::move(first);
  run.second = std::move(second);
  return run;
}

verification::FileHashes HashesOf(const core::CheckpointRecord& checkpoint) {
  verification::FileHashes hashes;
  for (const core::CheckpointFile& file : checkpoint.files) hashes[file.name] = file.hash;
  return hashes;
}

// Reads the points that are compared. Those of a job whose points were deleted are its last values.
absl::Status ReadMetrics(store::MetricsStore& stored, const core::JobRecord& job, bool only_last,
                         std::map<std::string, verification::Series>& metrics) {
  if (only_last) {
    for (const auto& [name, value] : job.metrics.values) metrics[name] = {{0, value}};
    return absl::OkStatus();
  }
  // The names come first, so that no points are read for nothing.
  TY_ASSIGN_OR_RETURN(const store::MetricSeries all, stored.Query(job.id, {}, {.max_points = 1}));
  std::vector<std::string> names;
  for (const auto& [name, points] : all) {
    if (verification::IsCompared(name)) names.push_back(name);
  }
  if (names.empty()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const store::MetricSeries read,
                      stored.Query(job.id, names, {.max_points = kComparedPointsMax}));
  for (const auto& [name, points] : read) {
    verification::Series& series = metrics[name];
    series.reserve(points.size());
    for (const store::StoredPoint& read_point : points) {
      series.push_back({read_point.point.step, read_point.point.value});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<verification::RunRecord> Gather(const RunSources& sources,
                                               const runtime::JobView& view,
                                               const std::vector<std::string>& devices,
                                               bool only_last_metrics) {
  const core::JobRecord& record = view.record;
  verification::RunRecord run;
  run.job = JobName(record.id);
  run.state = ToProto(record.state);
  run.failure = ToProto(view).failure().message();
  run.attempts = record.attempt;
  run.spec = ResolvedSpecOf(record);
  run.data_digest = record.data_digest;
  run.model_digest = record.model_digest;
  run.worker_version = record.worker_version;
  run.devices = devices;
  for (const auto& checkpoint : sources.board.CheckpointsOf(record.id)) {
    if (checkpoint->id.is_outputs()) {
      run.outputs = HashesOf(*checkpoint);
    } else if (checkpoint->is_whole()) {
      run.checkpoint_step = checkpoint->id.step;
      run.checkpoint = HashesOf(*checkpoint);
    }
  }
  TY_RETURN_IF_ERROR(ReadMetrics(sources.metrics, record, only_last_metrics, run.metrics));
  for (int32_t attempt = record.attempt; attempt > 0 && run.spec.has_program(); --attempt) {
    size_t bytes = 0;
    run.environment = ReadEnvironment(sources.logs, {record.id, attempt}, bytes);
    if (bytes > 0) break;
  }
  return run;
}

}  // namespace

std::vector<SecondRun> SecondRunsOf(const Services& services, const core::Yard& yard, JobId job) {
  std::vector<SecondRun> runs;
  const auto first = services.board.FindJob(job);
  if (first == nullptr) return runs;
  for (const JobId clone : yard.ClonesOf(job)) {
    auto second = services.board.FindJob(clone);
    if (second == nullptr || second->record.submission->verifies != job) continue;
    runs.push_back(RunOf(yard, first, std::move(second)));
  }
  return runs;
}

std::vector<SecondRun> SecondRunsLostWith(const Services& services, const core::Yard& yard,
                                          const core::DeleteJob& deletion) {
  std::vector<SecondRun> runs;
  const auto view = services.board.FindJob(deletion.job);
  if (view == nullptr || services.remarks == nullptr) return runs;
  // With the first run itself, all results go.
  if (deletion.parts.any()) runs = SecondRunsOf(services, yard, deletion.job);
  const JobId verified = view->record.submission->verifies;
  if (auto first = services.board.FindJob(verified); first != nullptr) {
    runs.push_back(RunOf(yard, std::move(first), view));
  }
  std::erase_if(runs, [&](const SecondRun& run) {
    return !HasEnded(run.second->record) || IsKept(services, run);
  });
  return runs;
}

absl::StatusOr<v1::Verification> JudgeSecondRun(const RunSources& sources, const SecondRun& run) {
  const core::JobRecord& first = run.first->record;
  const core::JobRecord& second = run.second->record;
  if (const auto remarks = RemarksOn(sources.remarks, first); remarks != nullptr) {
    const auto kept = remarks->verifications.find(second.id);
    if (kept != remarks->verifications.end()) return kept->second;
  }
  v1::Verification verification;
  if (!HasEnded(second)) {
    verification.set_job(JobName(second.id));
    verification.set_result(v1::VERIFICATION_RESULT_PENDING);
    verification.set_tolerance(second.submission->verify_tolerance);
    verification.set_devices(verification::DevicesText(run.second_devices));
    verification.set_user(second.submission->user);
    return verification;
  }
  const bool only_last = first.metrics_deleted || second.metrics_deleted;
  TY_ASSIGN_OR_RETURN(const verification::RunRecord before,
                      Gather(sources, *run.first, run.first_devices, only_last));
  TY_ASSIGN_OR_RETURN(const verification::RunRecord after,
                      Gather(sources, *run.second, run.second_devices, only_last));
  verification = verification::Compare(before, after, second.submission->verify_tolerance);
  verification.set_user(second.submission->user);
  *verification.mutable_time() = ToTimestamp(second.end_us);
  if (sources.remarks != nullptr) {
    TY_RETURN_IF_ERROR(sources.remarks->AddVerification(RemarkedJobOf(first), verification));
  }
  return verification;
}

void KeepResults(const RunSources& sources, const std::vector<SecondRun>& runs) {
  for (const SecondRun& run : runs) {
    const auto judged = JudgeSecondRun(sources, run);
    if (judged.ok()) continue;
    LogWarning("cannot compare a job with its second run",
               {{"job", JobName(run.first->record.id)},
                {"second", JobName(run.second->record.id)},
                {"error", judged.status().ToString()}});
  }
}

void JudgeLater(Services& services, const core::JobRecord& ended) {
  if (ended.submission->verifies == JobId{} || !HasEnded(ended)) return;
  services.runtime.Read([&services, first = ended.submission->verifies,
                         id = ended.id](absl::StatusOr<const core::Yard*> yard) {
    if (!yard.ok()) return;
    std::vector<SecondRun> runs = SecondRunsOf(services, **yard, first);
    std::erase_if(runs, [&](const SecondRun& run) { return run.second->record.id != id; });
    // If there is no room, whoever asks first for the results judges it.
    (void)services.metric_reads.TryPost(
        [sources = RunSources(services), runs = std::move(runs)] { KeepResults(sources, runs); });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListVerifications(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::ListVerificationsRequest* request, v1::ListVerificationsResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  if (!check.ok()) return Refused(context, check);
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto judge = [this, reactor, response, view = *view,
                      caller](const std::vector<SecondRun>& runs) -> absl::Status {
    std::map<JobId, v1::Verification> results;
    if (const auto remarks = RemarksOn(services_.remarks, view->record); remarks != nullptr) {
      results = remarks->verifications;
    }
    for (const SecondRun& run : runs) {
      const core::JobRecord& second = run.second->record;
      TY_ASSIGN_OR_RETURN(v1::Verification result, JudgeSecondRun(RunSources(services_), run));
      results[second.id] = std::move(result);
      if (!MaySee(caller, services_, second)) results.erase(second.id);
    }
    for (auto& [id, result] : results) *response->add_verifications() = std::move(result);
    return absl::OkStatus();
  };
  services_.runtime.Read([this, reactor, job, judge](absl::StatusOr<const core::Yard*> yard) {
    if (!yard.ok()) return reactor->Finish(ToGrpcStatus(yard.status()));
    const absl::Status posted = services_.metric_reads.TryPost(
        [reactor, judge, runs = SecondRunsOf(services_, **yard, job)] {
          reactor->Finish(ToGrpcStatus(judge(runs)));
        });
    if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  });
  return reactor;
}

}  // namespace trainyard::rpc
