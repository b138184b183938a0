#include "server/rpc/job_service.h"

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/spec/diff.h"
#include "server/rpc/convert.h"
#include "server/rpc/job_streams.h"
#include "server/rpc/limits.h"
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
  if (request->validate_only()) {
    *response = PreviewOf(*input->submission);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    services_.runtime.Read([reactor, response, submission = input->submission,
                            &runtime = services_.runtime](absl::StatusOr<const core::Yard*> yard) {
      if (yard.ok()) {
        const core::Explanation preview = (*yard)->Preview(*submission, runtime.Now());
        for (const std::string& reason : preview.reasons) response->add_queue_reasons(reason);
      }
      reactor->Finish(ToGrpcStatus(yard.status()));
    });
    return reactor;
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Post(*std::move(input), FinishWithJob(reactor, services_.board, response));
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
  return Finished(context, [&]() -> absl::Status {
    RequestCheck check;
    const int page_size =
        check.PageSize("page_size", request->page_size(), kJobsPageDefault, kJobsPageMax);
    const int64_t before = check.PageToken("page_token", request->page_token());
    TY_RETURN_IF_ERROR(check.Take());
    const std::set<int> states(request->states().begin(), request->states().end());
    // One more than asked for tells whether there is another page.
    const auto views = services_.board.ListJobs(
        before, static_cast<size_t>(page_size) + 1, [&states](const runtime::JobView& view) {
          return states.empty() || states.contains(ToProto(view.record.state));
        });
    size_t bytes = 0;
    for (const auto& view : views) {
      if (response->jobs_size() == page_size || bytes > kPageBytesMax) {
        response->set_next_page_token(
            absl::StrCat(ParseJobName(response->jobs().rbegin()->name())->value));
        break;
      }
      v1::Job* job = response->add_jobs();
      *job = ToProto(*view);
      bytes += job->ByteSizeLong();
    }
    return absl::OkStatus();
  }());
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
    *response->mutable_job() = PreviewOf(*clone->input.submission);
    return Finished(context, absl::OkStatus());
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
        spec::DiffSpecs(ParseSpec(left_view->record.submission->resolved_spec),
                        ParseSpec(right_view->record.submission->resolved_spec));
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
  const auto list = [this, reactor, response, job, after, page_size] {
    const auto events = services_.store.ListEvents(JobName(job), after, page_size);
    if (events.ok()) {
      for (const auto& event : *events) *response->add_events() = ToProto(event);
      // A full page may be the last one; the next is empty then.
      if (response->events_size() == page_size) {
        response->set_next_page_token(absl::StrCat(events->back().sequence));
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
