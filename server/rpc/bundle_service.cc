// Imported jobs have no worker, so their owner sends what a worker sends of others. All of it ends
// up where that of other jobs does.
#include "server/rpc/bundle_service.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/report_limits.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "server/rpc/answers.h"
#include "server/rpc/checkpoint_evaluation.h"
#include "server/rpc/checkpoint_imports.h"
#include "server/rpc/convert.h"
#include "server/rpc/convert_agent.h"
#include "server/rpc/import_job.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/submission.h"
#include "server/runtime/copy_errors.h"

namespace trainyard::rpc {
namespace {

// Imported points are those of rank 0.
constexpr int32_t kImportedRank = 0;

void FinishImported(grpc::ServerUnaryReactor* reactor, const absl::StatusOr<int64_t>& end,
                    v1::AppendImportedResponse* response) {
  if (end.ok()) response->set_next_offset(*end);
  reactor->Finish(ToGrpcStatus(end.status()));
}

// Adds up what the owner of the job has sent and not committed, for any of his jobs.
int64_t UncommittedOf(const core::Yard& yard, JobId job, const std::map<JobId, int64_t>& uploaded) {
  const core::JobRecord* record = yard.FindJob(job);
  int64_t bytes = 0;
  for (const auto& [id, size] : uploaded) {
    const core::JobRecord* other = yard.FindJob(id);
    const bool is_same_owner = record != nullptr && other != nullptr &&
                               other->submission->user == record->submission->user;
    if (is_same_owner) bytes += size;
  }
  return bytes;
}

// Reads the evaluation that a bundle states, for checkpoints that do not say it themselves.
std::optional<core::CheckpointEvaluation> EvaluationOf(
    const google::protobuf::Map<std::string, double>& metrics) {
  const auto loss = metrics.find("test.loss");
  const auto accuracy = metrics.find("test.accuracy");
  if (loss == metrics.end() || accuracy == metrics.end()) return std::nullopt;
  if (!std::isfinite(loss->second) || !std::isfinite(accuracy->second)) return std::nullopt;
  return core::CheckpointEvaluation{loss->second, accuracy->second};
}

}  // namespace

BundleServiceImpl::BundleServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* BundleServiceImpl::ImportJob(const access::Caller& caller,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::ImportJobRequest* request,
                                                       v1::Job* response) {
  RequestCheck check;
  Decisions decisions(access::RuleOf("BundleService/ImportJob"), caller, services_,
                      {request->job().resolved_spec().name()}, request->validate_only());
  auto taken = ImportOf(*request, caller, services_, check, decisions);
  decisions.Write();
  if (!taken.ok()) return Finished(context, taken.status());
  if (request->validate_only()) {
    *response = PreviewOf(*taken->input.imported->job.submission, v1::Explanation());
    for (std::string& warning : taken->warnings) response->add_warnings(std::move(warning));
    return Finished(context, absl::OkStatus());
  }
  return FinishWhenDone(context, services_, std::move(taken->input),
                        [&board = services_.board, response, warnings = std::move(taken->warnings)](
                            const core::Reply& reply) -> absl::Status {
                          TY_ASSIGN_OR_RETURN(const auto view, FindJob(board, reply.job));
                          *response = ToProto(*view);
                          for (const std::string& warning : warnings) {
                            response->add_warnings(warning);
                          }
                          return absl::OkStatus();
                        });
}

void BundleServiceImpl::CheckThenWork(grpc::ServerUnaryReactor* reactor, JobId job, int64_t bytes,
                                      runtime::Executor& executor, AttemptWork work) {
  services_.runtime.Read([reactor, job, bytes, &executor,
                          work = std::move(work)](absl::StatusOr<const core::Yard*> yard) {
    absl::Status status = yard.status();
    if (status.ok()) {
      const auto attempt = (*yard)->CheckImport(job, bytes);
      status = attempt.status();
      if (status.ok()) status = executor.TryPost([work, id = *attempt] { work(id); });
    }
    if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  });
}

absl::StatusOr<int64_t> BundleServiceImpl::StoreImportedPoints(
    AttemptId attempt, const v1::AppendImportedMetricsRequest& request) {
  TY_ASSIGN_OR_RETURN(const int64_t have, services_.metrics.ReadOffset(attempt, kImportedRank));
  const int64_t end = request.offset() + request.points_size();
  if (request.points().empty() || end <= have) return have;
  if (request.offset() != have) {
    return error::OffsetMismatch(absl::StrCat("metrics of ", request.name()), request.offset(),
                                 have);
  }
  std::vector<store::MetricPoint> points;
  points.reserve(static_cast<size_t>(request.points_size()));
  for (const v1::MetricPoint& point : request.points()) {
    points.push_back({point.step(), point.name(), point.value(), FromTimestamp(point.time())});
  }
  return services_.metrics.AppendPoints(attempt, kImportedRank, request.offset(), points, end);
}

grpc::ServerUnaryReactor* BundleServiceImpl::AppendImportedMetrics(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::AppendImportedMetricsRequest* request, v1::AppendImportedResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  check.NotNegative("offset", request->offset());
  check.MaxCount("points", request->points_size(), kPointsMax);
  for (int i = 0; i < request->points_size() && i < kPointsMax; ++i) {
    const v1::MetricPoint& point = request->points(i);
    const std::string field = absl::StrCat("points[", i, "]");
    check.NotEmpty(field + ".name", point.name());
    check.MaxBytes(field + ".name", point.name(), kMetricNameBytesMax);
    check.NotNegative(field + ".step", point.step());
  }
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const int64_t bytes =
      request->points().empty() ? 0 : static_cast<int64_t>(request->ByteSizeLong());
  CheckThenWork(reactor, job, bytes, services_.metric_writes,
                [this, reactor, request, response](AttemptId attempt) {
                  const auto end = StoreImportedPoints(attempt, *request);
                  if (end.ok()) services_.notifier.Notify(attempt.job, runtime::kMetricsGrew);
                  FinishImported(reactor, end, response);
                });
  return reactor;
}

grpc::ServerUnaryReactor* BundleServiceImpl::AppendImportedFile(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::AppendImportedFileRequest* request, v1::AppendImportedResponse* response) {
  RequestCheck check;
  const CheckpointId id = check.Checkpoint("name", request->name());
  check.NotNegative("offset", request->offset());
  check.MaxBytes("data", request->data(), kChunkBytesMax);
  const core::CheckpointFile file = FromProto(request->file(), "file", check);
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto append = [this, reactor, request, response, step = id.step, file](AttemptId attempt) {
    FinishImported(
        reactor, services_.blobs.Append({attempt, step}, file, request->offset(), request->data()),
        response);
  };
  // Nobody is charged for what is not committed, so each call looks at it.
  const absl::Status posted = services_.executor.TryPost([this, reactor, request, id, append] {
    services_.runtime.Read(
        [this, reactor, request, id, append,
         uploaded = services_.blobs.UploadedBytes()](absl::StatusOr<const core::Yard*> yard) {
          absl::Status status = yard.status();
          if (status.ok()) {
            const auto bytes = static_cast<int64_t>(request->data().size());
            const auto attempt = (*yard)->CheckImport(
                id.job, bytes == 0 ? 0 : bytes + UncommittedOf(**yard, id.job, uploaded));
            status = attempt.status();
            if (status.ok()) {
              status = services_.executor.TryPost([append, found = *attempt] { append(found); });
            }
          }
          if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
        });
  });
  if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  return reactor;
}

grpc::ServerUnaryReactor* BundleServiceImpl::CommitImportedCheckpoint(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::CommitImportedCheckpointRequest* request, v1::Checkpoint* response) {
  RequestCheck check;
  const CheckpointId id = check.Checkpoint("name", request->name());
  core::CommitImport input;
  input.checkpoint = {id.job, id.step};
  input.actor = UserActor(caller.user);
  input.create_us = std::max<int64_t>(FromTimestamp(request->create_time()), 0);
  input.evaluation = EvaluationOf(request->metrics());
  check.MaxCount("files", request->files_size(), kFilesMax);
  if (request->files().empty()) check.Add("files", "must be given");
  std::set<std::string> names;
  for (int i = 0; i < request->files_size() && i < kFilesMax; ++i) {
    const std::string field = absl::StrCat("files[", i, "]");
    input.files.push_back(FromProto(request->files(i), field, check));
    if (!names.insert(request->files(i).name()).second) {
      check.Add(field + ".name", absl::StrCat("'", request->files(i).name(), "' is there twice"));
    }
  }
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  CheckThenWork(reactor, id.job, 0, services_.executor,
                [this, reactor, response, input = std::move(input)](AttemptId attempt) {
                  CommitImported(reactor, attempt, input, response);
                });
  return reactor;
}

grpc::ServerUnaryReactor* BundleServiceImpl::ImportCheckpoint(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::ImportCheckpointRequest* request, v1::ImportCheckpointResponse* response) {
  using Answer = absl::StatusOr<v1::ImportCheckpointResponse>;
  Answer answer = services_.checkpoint_imports == nullptr
                      ? Answer(error::PlaceNotAllowed(request->place(), {}))
                      : services_.checkpoint_imports->Ask(caller, *request);
  // The import itself decides the rest, once for all questions about it.
  if (ErrorReason(answer.status()) == "PLACE_NOT_ALLOWED") {
    WriteDecision(access::RuleOf("BundleService/ImportCheckpoint"), caller, services_,
                  request->place(), answer.status());
  }
  if (answer.ok()) *response = *std::move(answer);
  return Finished(context, answer.status());
}

// The files come first, then the row that names them.
void BundleServiceImpl::CommitImported(grpc::ServerUnaryReactor* reactor, AttemptId attempt,
                                       core::CommitImport input, v1::Checkpoint* response) {
  const core::CheckpointRef id = input.checkpoint;
  std::shared_ptr<const void> pin;
  // One that is there and whole stays, so these files need not be there.
  const auto known = services_.board.FindCheckpoint(id);
  if (known == nullptr || !known->is_whole()) {
    auto sealed = services_.blobs.Seal({attempt, id.step}, input.files);
    if (!sealed.ok()) {
      reactor->Finish(ToGrpcStatus(sealed.status()));
      return;
    }
    pin = *std::move(sealed);
    if (const auto own = ReadEvaluation(services_.blobs, input.files); own.has_value()) {
      input.evaluation = own;
    }
  }
  services_.runtime.Post(std::move(input), [this, reactor, response, id, pin = std::move(pin)](
                                               const absl::StatusOr<core::Reply>& reply) {
    absl::Status status = reply.status();
    if (status.ok()) {
      const auto stored = services_.board.FindCheckpoint(id);
      if (stored != nullptr) {
        *response = ToProto(*stored);
      } else {
        status = error::CheckpointNotFound(CheckpointName(id.job, id.step));  // deleted already
      }
    }
    reactor->Finish(ToGrpcStatus(status));
  });
}

}  // namespace trainyard::rpc
