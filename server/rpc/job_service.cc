#include "server/rpc/job_service.h"

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/spec/diff.h"
#include "server/rpc/cancel_jobs.h"
#include "server/rpc/convert.h"
#include "server/rpc/create_jobs.h"
#include "server/rpc/job_streams.h"
#include "server/rpc/limits.h"
#include "server/rpc/list_jobs.h"
#include "server/rpc/query_metrics.h"
#include "server/rpc/request.h"
#include "server/rpc/submission.h"

namespace trainyard::rpc {
namespace {

// The reactor of a call that has been answered already.
grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                   const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::StatusOr<std::shared_ptr<const runtime::JobView>> FindJob(const runtime::Board& board,
                                                                JobId job) {
  auto view = board.FindJob(job);
  if (view == nullptr) return error::JobNotFound(JobName(job));
  return view;
}

// Answers with the job as it is after its input was committed.
runtime::Runtime::Done FinishWithJob(grpc::ServerUnaryReactor* reactor, const runtime::Board& board,
                                     v1::Job* response) {
  return [reactor, &board, response](absl::StatusOr<core::Reply> reply) {
    if (reply.ok()) {
      const auto view = FindJob(board, reply->job);
      if (view.ok()) *response = ToProto(**view);
      reactor->Finish(ToGrpcStatus(view.status()));
    } else {
      reactor->Finish(ToGrpcStatus(reply.status()));
    }
  };
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::CreateJob(grpc::CallbackServerContext* context,
                                                    const v1::CreateJobRequest* request,
                                                    v1::Job* response) {
  RequestCheck check;
  const std::string user = UserOf(*context, services_, check);
  auto input = SubmissionOf(*request, user, services_, check);
  if (!input.ok()) return Finished(context, input.status());
  if (request->validate_only()) return FinishWithPreview(context, input->submission, response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Post(*std::move(input), FinishWithJob(reactor, services_.board, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::FinishWithPreview(
    grpc::CallbackServerContext* context, std::shared_ptr<const core::Submission> submission,
    v1::Job* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Read([reactor, response, submission = std::move(submission),
                          &runtime = services_.runtime](absl::StatusOr<const core::Yard*> yard) {
    if (yard.ok()) {
      const core::Now now = runtime.Now();
      *response = PreviewOf(*submission, ToProto((*yard)->Preview(*submission, now), now));
    }
    reactor->Finish(ToGrpcStatus(yard.status()));
  });
  return reactor;
}

grpc::ServerBidiReactor<v1::CreateJobsRequest, v1::CreateJobsResponse>* JobServiceImpl::CreateJobs(
    grpc::CallbackServerContext* context) {
  RequestCheck check;
  const std::string user = UserOf(*context, services_, check);
  return check.ok() ? StartCreateJobs(services_, user) : FailedCreateJobs(check.Take());
}

grpc::ServerUnaryReactor* JobServiceImpl::ExplainJob(grpc::CallbackServerContext* context,
                                                     const v1::ExplainJobRequest* request,
                                                     v1::Explanation* response) {
  RequestCheck check;
  const std::string user = UserOf(*context, services_, check);
  JobId job;
  std::shared_ptr<const core::Submission> submission;
  if (request->has_spec()) {
    auto made = SubmissionOf(request->spec(), request->options(), "", user, services_, check);
    if (!made.ok()) return Finished(context, made.status());
    submission = *std::move(made);
  } else {
    job = check.Job("name", request->name());
    if (!check.ok()) return Finished(context, check.Take());
    const auto view = FindJob(services_.board, job);
    if (!view.ok()) return Finished(context, view.status());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Read([reactor, response, job, submission,
                          &runtime = services_.runtime](absl::StatusOr<const core::Yard*> yard) {
    if (yard.ok()) {
      const core::Now now = runtime.Now();
      *response = ToProto(
          submission == nullptr ? (*yard)->Explain(job, now) : (*yard)->Preview(*submission, now),
          now);
    }
    reactor->Finish(ToGrpcStatus(yard.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(grpc::CallbackServerContext* context,
                                                 const v1::GetJobRequest* request,
                                                 v1::Job* response) {
  return Finished(context, [&]() -> absl::Status {
    RequestCheck check;
    const JobId job = check.Job("name", request->name());
    TY_RETURN_IF_ERROR(check.Take());
    TY_ASSIGN_OR_RETURN(const auto view, FindJob(services_.board, job));
    *response = ToProto(*view);
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                   const v1::ListJobsRequest* request,
                                                   v1::ListJobsResponse* response) {
  return Finished(context, ListPage(*request, services_.board, *response));
}

grpc::ServerUnaryReactor* JobServiceImpl::ListQueue(grpc::CallbackServerContext* context,
                                                    const v1::ListQueueRequest* request,
                                                    v1::ListQueueResponse* response) {
  RequestCheck check;
  const int page_size =
      check.PageSize("page_size", request->page_size(), kQueuePageDefault, kQueuePageMax);
  if (!check.ok()) return Finished(context, check.Take());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Read(
      [this, reactor, response, page_size](absl::StatusOr<const core::Yard*> yard) {
        if (!yard.ok()) return reactor->Finish(ToGrpcStatus(yard.status()));
        for (const JobId job : (*yard)->QueueFront()) {
          if (response->jobs_size() == page_size) break;
          if (const auto view = services_.board.FindJob(job))
            *response->add_jobs() = ToProto(*view);
        }
        for (const auto& [key, tally] : services_.board.Tallies()) {
          response->set_queued_jobs(response->queued_jobs() + tally.queued_jobs);
        }
        reactor->Finish(grpc::Status::OK);
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::PostVerb(grpc::CallbackServerContext* context,
                                                   core::Input input, v1::Job* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Post(std::move(input), FinishWithJob(reactor, services_.board, response));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                    const v1::CancelJobRequest* request,
                                                    v1::Job* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  const std::string user = UserOf(*context, services_, check);
  if (!check.ok()) return Finished(context, check.Take());
  return PostVerb(context, core::CancelJob{job, UserActor(user), request->reason()}, response);
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJobs(grpc::CallbackServerContext* context,
                                                     const v1::CancelJobsRequest* request,
                                                     v1::CancelJobsResponse* response) {
  RequestCheck check;
  const std::string user = UserOf(*context, services_, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  StartCancelJobs(services_, *request, user, check, reactor, response);
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::SuspendJob(grpc::CallbackServerContext* context,
                                                     const v1::SuspendJobRequest* request,
                                                     v1::Job* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  const std::string user = UserOf(*context, services_, check);
  if (!check.ok()) return Finished(context, check.Take());
  return PostVerb(context, core::SuspendJob{job, UserActor(user), request->reason()}, response);
}

grpc::ServerUnaryReactor* JobServiceImpl::ResumeJob(grpc::CallbackServerContext* context,
                                                    const v1::ResumeJobRequest* request,
                                                    v1::Job* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  const std::string user = UserOf(*context, services_, check);
  if (!check.ok()) return Finished(context, check.Take());
  return PostVerb(context, core::ResumeJob{job, UserActor(user)}, response);
}

grpc::ServerUnaryReactor* JobServiceImpl::CloneJob(grpc::CallbackServerContext* context,
                                                   const v1::CloneJobRequest* request,
                                                   v1::CloneJobResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  const std::string user = UserOf(*context, services_, check);
  if (!check.ok()) return Finished(context, check.Take());
  const auto original = FindJob(services_.board, job);
  if (!original.ok()) return Finished(context, original.status());
  auto clone = CloneOf(*request, **original, user, services_, check);
  if (!clone.ok()) return Finished(context, clone.status());
  for (v1::SpecDifference& difference : clone->differences) {
    *response->add_differences() = std::move(difference);
  }
  if (request->validate_only()) {
    return FinishWithPreview(context, clone->input.submission, response->mutable_job());
  }
  return PostVerb(context, std::move(clone->input), response->mutable_job());
}

grpc::ServerUnaryReactor* JobServiceImpl::DiffJobs(grpc::CallbackServerContext* context,
                                                   const v1::DiffJobsRequest* request,
                                                   v1::DiffJobsResponse* response) {
  return Finished(context, [&]() -> absl::Status {
    RequestCheck check;
    const JobId left = check.Job("left", request->left());
    const JobId right = check.Job("right", request->right());
    TY_RETURN_IF_ERROR(check.Take());
    TY_ASSIGN_OR_RETURN(const auto left_view, FindJob(services_.board, left));
    TY_ASSIGN_OR_RETURN(const auto right_view, FindJob(services_.board, right));
    const auto differences =
        spec::DiffSpecs(ResolvedSpecOf(left_view->record), ResolvedSpecOf(right_view->record));
    for (const auto& difference : differences) *response->add_differences() = ToProto(difference);
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* JobServiceImpl::ListAttempts(grpc::CallbackServerContext* context,
                                                       const v1::ListAttemptsRequest* request,
                                                       v1::ListAttemptsResponse* response) {
  return Finished(context, [&]() -> absl::Status {
    RequestCheck check;
    const JobId job = check.Job("parent", request->parent());
    TY_RETURN_IF_ERROR(check.Take());
    TY_RETURN_IF_ERROR(FindJob(services_.board, job).status());
    for (const auto& attempt : services_.board.AttemptsOf(job)) {
      *response->add_attempts() = ToProto(*attempt);
    }
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* JobServiceImpl::ListEvents(grpc::CallbackServerContext* context,
                                                     const v1::ListEventsRequest* request,
                                                     v1::ListEventsResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("parent", request->parent());
  const int page_size =
      check.PageSize("page_size", request->page_size(), kEventsPageDefault, kEventsPageMax);
  const int64_t after = check.PageToken("page_token", request->page_token());
  if (!check.ok()) return Finished(context, check.Take());
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());

  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // One event tells of the submission of a whole array: the history of each element starts with it.
  const core::JobRecord& record = (*view)->record;
  const JobId array = record.array_index() > 0 && after == 0 ? record.array : JobId{};
  const auto list = [this, reactor, response, job, array, after, page_size] {
    if (array != JobId{}) {
      const auto submitted = services_.store.ListEvents(JobName(array), 0, 1);
      if (submitted.ok() && !submitted->empty()) {
        *response->add_events() = ToProto(submitted->front());
      }
    }
    const auto events =
        services_.store.ListEvents(JobName(job), after, page_size - response->events_size());
    if (events.ok()) {
      for (const auto& event : *events) *response->add_events() = ToProto(event);
      // A full page may be the last one; the next is empty then.
      if (response->events_size() == page_size) {
        response->set_next_page_token(absl::StrCat(response->events().rbegin()->sequence()));
      }
    }
    reactor->Finish(ToGrpcStatus(events.status()));
  };
  const absl::Status posted = services_.executor.TryPost(list);
  if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchJobsResponse>* JobServiceImpl::WatchJobs(
    grpc::CallbackServerContext*, const v1::WatchJobsRequest* request) {
  return StartWatchJobs(services_, *request);
}

grpc::ServerWriteReactor<v1::TailLogsResponse>* JobServiceImpl::TailLogs(
    grpc::CallbackServerContext*, const v1::TailLogsRequest* request) {
  return StartTailLogs(services_, *request);
}

grpc::ServerWriteReactor<v1::WatchMetricsResponse>* JobServiceImpl::WatchMetrics(
    grpc::CallbackServerContext*, const v1::WatchMetricsRequest* request) {
  return StartWatchMetrics(services_, *request);
}

grpc::ServerUnaryReactor* JobServiceImpl::QueryMetrics(grpc::CallbackServerContext* context,
                                                       const v1::QueryMetricsRequest* request,
                                                       v1::QueryMetricsResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  check.NotNegative("max_points", request->max_points());
  check.MaxCount("metrics", request->metrics_size(), kPointsMax);
  if (!check.ok()) return Finished(context, check.Take());
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status posted = services_.executor.TryPost([this, reactor, request, response, job] {
    reactor->Finish(ToGrpcStatus(QuerySeries(services_.metrics, job, *request, *response)));
  });
  if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  return reactor;
}

}  // namespace trainyard::rpc
