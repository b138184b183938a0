// Implements the handlers for workers. What must survive is on disk before they answer.
#include "server/rpc/agent_service.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/code_errors.h"
#include "common/base/report_limits.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/spec/interval.h"
#include "server/rpc/answers.h"
#include "server/rpc/checkpoint_evaluation.h"
#include "server/rpc/code_download.h"
#include "server/rpc/convert.h"
#include "server/rpc/convert_agent.h"
#include "server/rpc/decisions.h"
#include "server/rpc/download.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/streams.h"
#include "server/rpc/tunnel_service.h"
#include "server/rpc/verify_checkpoint.h"

namespace trainyard::rpc {
namespace {

// An append is answered with the offset at which to continue.
void FinishAppend(grpc::ServerUnaryReactor* reactor, const absl::StatusOr<int64_t>& end,
                  v1::AppendResponse* response) {
  if (end.ok()) response->set_next_offset(*end);
  reactor->Finish(ToGrpcStatus(end.status()));
}

// Returns the attempt that a stream's request names. It checks the fields that all such requests
// share.
template <typename Request>
AttemptId CheckStreamRequest(const Request& request, RequestCheck& check) {
  check.NotEmpty("session", request.session());
  return check.Attempt("attempt", request.attempt());
}

// Checks that the session's worker hosts the rank. Otherwise it returns INVALID_ARGUMENT, because
// the worker has a bug.
absl::Status CheckRank(const core::Yard& yard, const std::string& session, AttemptId attempt,
                       int32_t rank) {
  TY_ASSIGN_OR_RETURN(const std::string worker, yard.WorkerOfSession(session));
  const core::AttemptRecord* record = yard.FindAttempt(attempt);
  if (record == nullptr) return error::AttemptNotFound(AttemptName(attempt));
  for (const core::RankPlacement& placed : record->ranks) {
    if (placed.rank == rank && placed.worker == worker) return absl::OkStatus();
  }
  return InvalidFields({{"rank", absl::StrCat(rank, " of ", AttemptName(attempt),
                                              " does not run on worker '", worker, "'")}});
}

// Asks the yard whether the session may send streams of the rank. The request lives until it is
// answered.
template <typename Request>
auto StreamCheck(const Request& request, AttemptId attempt) {
  return [&request, attempt](const core::Yard& yard) -> absl::Status {
    TY_RETURN_IF_ERROR(yard.CheckStream(request.session(), attempt, request.fencing_token()));
    return CheckRank(yard, request.session(), attempt, request.rank());
  };
}

// Asks the yard whether the session may write checkpoints of the attempt.
template <typename Request>
auto CheckpointCheck(const Request& request, AttemptId attempt) {
  return [&request, attempt](const core::Yard& yard) -> absl::Status {
    return yard.CheckCheckpointWriter(request.session(), attempt, request.fencing_token());
  };
}

// Returns the step under which what the request is about is kept.
template <typename Request>
int64_t StepOf(const Request& request, RequestCheck& check) {
  check.NotNegative("step", request.step());
  if (request.is_output() && request.step() != 0) {
    check.Add("step", absl::StrCat(request.step(), " is given, but outputs have no step"));
  }
  return request.is_output() ? core::kOutputsStep : request.step();
}

// A certificate is for one worker.
absl::Status CheckOwnName(const access::Caller& caller, const std::string& worker) {
  if (caller.worker.empty() || caller.worker == worker) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied, "NOT_THIS_WORKER",
                   absl::StrCat("the certificate is that of worker '", caller.worker, "', not of '",
                                worker, "'"));
}

}  // namespace

AgentServiceImpl::AgentServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* AgentServiceImpl::RegisterWorker(const access::Caller& caller,
                                                           grpc::CallbackServerContext* context,
                                                           const v1::RegisterWorkerRequest* request,
                                                           v1::RegisterWorkerResponse* response) {
  RequestCheck check;
  Decisions decisions(access::RuleOf("AgentService/RegisterWorker"), caller, services_,
                      ResourcesOf(*request));
  core::RegisterWorker input = FromProto(*request, check);
  if (!check.ok()) return Refused(context, check);
  absl::Status may = CheckOwnName(caller, request->worker());
  if (may.ok()) may = sessions_.CheckCount(caller, request->worker());
  may = decisions.Take(may);
  decisions.Write();
  if (!may.ok()) return Finished(context, may);
  // A worker of another user runs that user's jobs alone, whatever it says.
  if (!caller.is_host && caller.worker.empty()) input.run_as_user = caller.user;
  input.session = MakeUuid(services_.rng);
  response->set_session(input.session);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Post(std::move(input), [this, reactor, caller, request,
                                            response](const absl::StatusOr<core::Reply>& reply) {
    if (!reply.ok()) {
      reactor->Finish(ToGrpcStatus(reply.status()));
      return;
    }
    sessions_.Begin(caller, request->worker(), response->session());
    services_.runtime.Read([reactor, response](absl::StatusOr<const core::Yard*> yard) {
      if (yard.ok()) {
        *response->mutable_lease_duration() = ToDuration((*yard)->config().lease_us);
        *response->mutable_sync_interval() = ToDuration((*yard)->config().sync_interval_us);
      }
      reactor->Finish(ToGrpcStatus(yard.status()));
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* AgentServiceImpl::SyncWorker(const access::Caller& caller,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::SyncWorkerRequest* request,
                                                       v1::SyncWorkerResponse* response) {
  if (const absl::Status own = sessions_.Check(caller, request->session()); !own.ok()) {
    return Finished(context, own);
  }
  RequestCheck check;
  core::SyncReport report = FromProto(*request, check);
  if (!check.ok()) return Refused(context, check);
  const absl::Duration max_wait =
      std::clamp(spec::FromProto(request->max_wait()), absl::ZeroDuration(), kSyncWaitMax);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Sync(
      std::move(report), max_wait,
      [this, reactor, request, response](absl::StatusOr<runtime::DesiredState> desired) {
        if (desired.ok()) {
          *response = ToProto(*desired, services_.board);
          GrantCheckpoints(request->session(), *response);
          AddTunnels(services_, desired->worker, *response);
        }
        reactor->Finish(ToGrpcStatus(desired.status()));
      });
  return reactor;
}

TunnelReactor* AgentServiceImpl::ServeTunnel(grpc::CallbackServerContext* context) {
  const auto caller = Admit(access::RuleOf("AgentService/ServeTunnel"), *context, services_, {},
                            /*is_trial=*/false);
  return caller.ok() ? StartServeTunnel(services_, sessions_, *caller)
                     : FailedTunnel(caller.status());
}

void AgentServiceImpl::GrantCheckpoints(const std::string& session,
                                        const v1::SyncWorkerResponse& desired) {
  for (const v1::DesiredAttempt& attempt : desired.attempts()) {
    if (attempt.has_resume_from()) sessions_.Grant(session, attempt.resume_from().name());
    if (attempt.has_init_from()) sessions_.Grant(session, attempt.init_from().name());
    if (attempt.spec().program().code().empty()) continue;
    if (const auto id = ParseAttemptName(attempt.attempt()); id.ok()) {
      sessions_.Grant(session, JobName(id->job));
    }
  }
}

void AgentServiceImpl::CheckThenWork(grpc::ServerUnaryReactor* reactor, YardCheck check,
                                     runtime::Executor& executor, std::function<void()> work) {
  services_.runtime.Read([reactor, check = std::move(check), &executor,
                          work = std::move(work)](absl::StatusOr<const core::Yard*> yard) {
    absl::Status status = yard.ok() ? check(**yard) : yard.status();
    if (status.ok()) status = executor.TryPost(work);
    if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  });
}

absl::StatusOr<int64_t> AgentServiceImpl::StoreLog(const runtime::LogId& log,
                                                   const v1::AppendLogRequest& request) {
  // Whoever has deleted the logs does not want the rest of them either.
  const auto view = services_.board.FindJob(log.attempt.job);
  if (view != nullptr && view->record.logs_deleted) {
    return request.offset() + static_cast<int64_t>(request.data().size());
  }
  return services_.logs.Append(log, request.offset(), request.data());
}

grpc::ServerUnaryReactor* AgentServiceImpl::AppendLog(const access::Caller& caller,
                                                      grpc::CallbackServerContext* context,
                                                      const v1::AppendLogRequest* request,
                                                      v1::AppendResponse* response) {
  if (const absl::Status own = sessions_.Check(caller, request->session()); !own.ok()) {
    return Finished(context, own);
  }
  RequestCheck check;
  const AttemptId attempt = CheckStreamRequest(*request, check);
  const runtime::RankStream stream = check.Stream("stream", request->stream());
  check.NotNegative("offset", request->offset());
  check.MaxBytes("data", request->data(), kChunkBytesMax);
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  CheckThenWork(reactor, StreamCheck(*request, attempt), services_.executor,
                [this, reactor, request, response, attempt, stream] {
                  const auto end = StoreLog({attempt, request->rank(), stream}, *request);
                  if (end.ok()) services_.notifier.Notify(attempt.job, runtime::kLogGrew);
                  FinishAppend(reactor, end, response);
                });
  return reactor;
}

absl::StatusOr<int64_t> AgentServiceImpl::StorePoints(AttemptId attempt,
                                                      const v1::AppendMetricsRequest& request) {
  const int32_t stream =
      request.of_device() ? store::DeviceStreamOf(request.rank()) : request.rank();
  // Whoever has deleted the metrics does not want the rest of them either.
  const auto view = services_.board.FindJob(attempt.job);
  if (view != nullptr && view->record.metrics_deleted) return request.end_offset();
  TY_ASSIGN_OR_RETURN(const int64_t have, services_.metrics.ReadOffset(attempt, stream));
  if (request.end_offset() <= have) return have;  // a repeated request
  if (request.offset() != have) {
    // Lines cannot be told apart by bytes here, so the worker starts again at the offset of the
    // server.
    return error::OffsetMismatch(
        absl::StrCat(request.of_device() ? "device metrics" : "metrics", " of rank ",
                     request.rank(), " of ", request.attempt()),
        request.offset(), have);
  }
  std::vector<store::MetricPoint> points;
  points.reserve(static_cast<size_t>(request.points_size()));
  for (const v1::MetricPoint& point : request.points()) {
    points.push_back({point.step(), point.name(), point.value(), FromTimestamp(point.time())});
  }
  return services_.metrics.AppendPoints(attempt, stream, request.offset(), points,
                                        request.end_offset());
}

grpc::ServerUnaryReactor* AgentServiceImpl::AppendMetrics(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::AppendMetricsRequest* request,
                                                          v1::AppendResponse* response) {
  if (const absl::Status own = sessions_.Check(caller, request->session()); !own.ok()) {
    return Finished(context, own);
  }
  RequestCheck check;
  const AttemptId attempt = CheckStreamRequest(*request, check);
  check.NotNegative("offset", request->offset());
  check.MaxCount("points", request->points_size(), kPointsMax);
  if (request->end_offset() < request->offset()) {
    check.Add("end_offset",
              absl::StrCat(request->end_offset(), " lies before offset ", request->offset()));
  }
  for (int i = 0; i < request->points_size() && i < kPointsMax; ++i) {
    const v1::MetricPoint& point = request->points(i);
    const std::string field = absl::StrCat("points[", i, "]");
    check.NotEmpty(field + ".name", point.name());
    check.MaxBytes(field + ".name", point.name(), kMetricNameBytesMax);
    check.NotNegative(field + ".step", point.step());
  }
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  CheckThenWork(reactor, StreamCheck(*request, attempt), services_.metric_writes,
                [this, reactor, request, response, attempt] {
                  const auto end = StorePoints(attempt, *request);
                  if (end.ok()) services_.notifier.Notify(attempt.job, runtime::kMetricsGrew);
                  FinishAppend(reactor, end, response);
                });
  return reactor;
}

grpc::ServerUnaryReactor* AgentServiceImpl::AppendCheckpointFile(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::AppendCheckpointFileRequest* request, v1::AppendResponse* response) {
  if (const absl::Status own = sessions_.Check(caller, request->session()); !own.ok()) {
    return Finished(context, own);
  }
  RequestCheck check;
  const AttemptId attempt = CheckStreamRequest(*request, check);
  const int64_t step = StepOf(*request, check);
  check.NotNegative("offset", request->offset());
  check.MaxBytes("data", request->data(), kChunkBytesMax);
  const core::CheckpointFile file = FromProto(request->file(), "file", check);
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  CheckThenWork(reactor, CheckpointCheck(*request, attempt), services_.executor,
                [this, reactor, request, response, attempt, step, file] {
                  FinishAppend(reactor,
                               services_.blobs.Append({attempt, step}, file, request->offset(),
                                                      request->data()),
                               response);
                });
  return reactor;
}

grpc::ServerUnaryReactor* AgentServiceImpl::CommitCheckpoint(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::CommitCheckpointRequest* request, v1::CommitCheckpointResponse* response) {
  if (const absl::Status own = sessions_.Check(caller, request->session()); !own.ok()) {
    return Finished(context, own);
  }
  RequestCheck check;
  core::CommitCheckpoint input;
  input.session = request->session();
  input.attempt = CheckStreamRequest(*request, check);
  input.fencing_token = request->fencing_token();
  input.step = StepOf(*request, check);
  input.left_out = request->left_out();
  check.MaxBytes("left_out", request->left_out(), kLeftOutBytesMax);
  check.MaxCount("files", request->files_size(), kFilesMax);
  const bool may_be_empty = request->is_output() && !request->left_out().empty();
  if (request->files().empty() && !may_be_empty) check.Add("files", "must be given");
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
  CheckThenWork(reactor, CheckpointCheck(*request, input.attempt), services_.executor,
                [this, reactor, input, response] { CommitSealed(reactor, input, response); });
  return reactor;
}

// The files come first, then the row that names them.
void AgentServiceImpl::CommitSealed(grpc::ServerUnaryReactor* reactor, core::CommitCheckpoint input,
                                    v1::CommitCheckpointResponse* response) {
  std::sort(input.files.begin(), input.files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  core::CheckpointRecord sent;
  sent.id = {input.attempt.job, input.step};
  sent.attempt = input.attempt.number;
  sent.files = input.files;
  // Another checkpoint of this step that is committed and whole stays, so these files need not be
  // there. Files that are sealed already cost nothing here, unless one was found damaged and came
  // anew.
  std::shared_ptr<const void> pin;
  const auto known = services_.board.FindCheckpoint(sent.id);
  const bool is_kept = known != nullptr && known->is_whole() && known->files != input.files;
  if (input.step == core::kOutputsStep || !is_kept) {
    auto sealed = services_.blobs.Seal({input.attempt, input.step}, input.files);
    if (!sealed.ok()) {
      reactor->Finish(ToGrpcStatus(sealed.status()));
      return;
    }
    pin = *std::move(sealed);
    if (input.step != core::kOutputsStep) {
      input.evaluation = ReadEvaluation(services_.blobs, input.files);
    }
  }
  services_.runtime.Post(
      std::move(input), [this, reactor, response, sent = std::move(sent),
                         pin = std::move(pin)](const absl::StatusOr<core::Reply>& reply) {
        if (reply.ok() && !sent.id.is_outputs()) {
          const auto stored = services_.board.FindCheckpoint(sent.id);
          // This is null if newer checkpoints have replaced it at once.
          *response->mutable_checkpoint() = ToProto(stored != nullptr ? *stored : sent);
        }
        reactor->Finish(ToGrpcStatus(reply.status()));
      });
}

grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* AgentServiceImpl::FetchCheckpoint(
    const access::Caller& caller, const v1::DownloadCheckpointRequest* request) {
  if (const absl::Status may = sessions_.CheckFetch(caller, request->name()); !may.ok()) {
    return FailedStream<v1::DownloadCheckpointResponse>(may);
  }
  return StartDownload(services_, {std::string(Streams::kWorkers)}, *request);
}

grpc::ServerWriteReactor<v1::DownloadCodeResponse>* AgentServiceImpl::FetchCode(
    const access::Caller& caller, const v1::DownloadCodeRequest* request) {
  if (!sessions_.CheckFetch(caller, request->name()).ok()) {
    return FailedStream<v1::DownloadCodeResponse>(error::CodeNotFound(
        absl::StrCat("the worker was not told to run '", request->name().substr(0, 64), "'")));
  }
  return StartCodeDownload(services_, {std::string(Streams::kWorkers)}, *request);
}

grpc::ServerUnaryReactor* AgentServiceImpl::VerifyCheckpoint(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::VerifyCheckpointRequest* request, v1::Checkpoint* response) {
  if (const absl::Status may = sessions_.CheckFetch(caller, request->name()); !may.ok()) {
    return Finished(context, may);
  }
  return StartVerification(context, services_, *request, response);
}

}  // namespace trainyard::rpc
