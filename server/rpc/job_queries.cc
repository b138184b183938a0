// Implements the handlers of JobService that only read. Most read the board and answer at once.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/spec/array.h"
#include "common/spec/diff.h"
#include "server/core/yard/deletion.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/decisions.h"
#include "server/rpc/environments.h"
#include "server/rpc/job_service.h"
#include "server/rpc/job_streams.h"
#include "server/rpc/limits.h"
#include "server/rpc/list_jobs.h"
#include "server/rpc/offers.h"
#include "server/rpc/query_metrics.h"
#include "server/rpc/remarks.h"
#include "server/rpc/request.h"
#include "server/rpc/submission.h"

namespace trainyard::rpc {
namespace {

// One event stands for the submission of a whole array, so the history of each of its jobs starts
// with that event. This blocks on the store.
absl::Status ListHistory(store::Store& store, const core::JobRecord& job, int64_t after,
                         int page_size, v1::ListEventsResponse& response) {
  if (job.array_index() > 0 && after == 0) {
    const auto submitted = store.ListEvents(JobName(job.array), 0, 1);
    if (submitted.ok() && !submitted->empty()) *response.add_events() = ToProto(submitted->front());
  }
  TY_ASSIGN_OR_RETURN(const auto events,
                      store.ListEvents(JobName(job.id), after, page_size - response.events_size()));
  for (const core::EventRecord& event : events) *response.add_events() = ToProto(event);
  // A full page may be the last one. The next page is then empty.
  if (response.events_size() == page_size) {
    response.set_next_page_token(absl::StrCat(response.events().rbegin()->sequence()));
  }
  return absl::OkStatus();
}

// Adds what the programs of the newest attempts ran in, as their workers have told it. This blocks
// on the disk.
void AddEnvironments(const runtime::LogStore& logs, JobId job, v1::ListAttemptsResponse& response) {
  int64_t room = kEnvironmentsBytesMax;
  for (int i = response.attempts_size() - 1; i >= 0; --i) {
    v1::Attempt& attempt = *response.mutable_attempts(i);
    size_t bytes = 0;
    v1::ProgramEnvironment environment = ReadEnvironment(logs, {job, i + 1}, bytes);
    room -= static_cast<int64_t>(bytes);
    if (room < 0) return;
    if (environment.ByteSizeLong() > 0) *attempt.mutable_environment() = std::move(environment);
  }
}

// Returns the spec that the job ran. The job may have been deleted if clones of it exist.
// Jobs that the caller may not see do not exist for it.
absl::StatusOr<v1::JobSpec> SpecOf(const access::Caller& caller, const Services& services,
                                   const core::Yard& yard, JobId job) {
  const auto found = yard.snapshot().jobs.find(job);
  if (found != yard.snapshot().jobs.end()) return ResolvedSpecOf(found->second);
  const auto known = core::FindSubmission(yard.snapshot(), job);
  if (known.submission == nullptr ||
      !services.directory.MaySee(caller, known.submission->user, known.submission->project)) {
    return error::JobNotFound(JobName(job));
  }
  v1::JobSpec spec = ResolvedSpecOf(*known.submission);
  if (known.submission->array_size == 0) return spec;
  return spec::ArrayElement(spec, static_cast<int32_t>(job.value - known.id.value));
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::ExplainJob(const access::Caller& caller,
                                                     grpc::CallbackServerContext* context,
                                                     const v1::ExplainJobRequest* request,
                                                     v1::Explanation* response) {
  RequestCheck check;
  JobId job;
  std::shared_ptr<const core::Submission> submission;
  if (request->has_spec()) {
    Decisions decisions(access::RuleOf("JobService/ExplainJob"), caller, services_, {});
    auto made = SubmissionOf(request->spec(), request->options(), "", /*is_trial=*/true, caller,
                             services_, check, decisions);
    decisions.Write();
    if (!made.ok()) return Finished(context, made.status());
    submission = *std::move(made);
  } else {
    job = check.Job("name", request->name());
    if (!check.ok()) return Refused(context, check);
    const auto view = FindJob(services_.board, job);
    if (!view.ok()) return Finished(context, view.status());
  }
  return FinishFromYard(context, services_, [this, response, job, submission](auto& yard) {
    const core::Now now = services_.runtime.Now();
    if (submission != nullptr) {
      const auto accept = AcceptIfSubmittable(*submission, yard, now);
      *response = ToProto(yard.Preview(*submission, now, accept), now);
    } else if (const core::JobRecord* record = yard.FindJob(job); record != nullptr) {
      const auto accept = AcceptIfSubmittable(*record->submission, yard, now);
      *response = ToProto(yard.Explain(job, now, accept), now);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(const access::Caller&,
                                                 grpc::CallbackServerContext* context,
                                                 const v1::GetJobRequest* request,
                                                 v1::Job* response) {
  return Finished(context, [&]() -> absl::Status {
    RequestCheck check;
    const JobId job = check.Job("name", request->name());
    TY_RETURN_IF_ERROR(check.Take());
    TY_ASSIGN_OR_RETURN(const auto view, FindJob(services_.board, job));
    *response = ShownJob(services_, *view);
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(const access::Caller& caller,
                                                   grpc::CallbackServerContext* context,
                                                   const v1::ListJobsRequest* request,
                                                   v1::ListJobsResponse* response) {
  if (request->where().empty() && request->order_by().empty()) {
    return Finished(context, ListPage(*request, caller, services_, *response));
  }
  // Such a list looks into the specs of all jobs, which takes its time.
  return FinishAfter(context, services_.executor, [this, caller, request, response] {
    return ListPage(*request, caller, services_, *response);
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListQueue(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::ListQueueRequest* request,
                                                    v1::ListQueueResponse* response) {
  RequestCheck check;
  const int page_size =
      check.PageSize("page_size", request->page_size(), kQueuePageDefault, kQueuePageMax);
  if (!check.ok()) return Refused(context, check);
  return FinishFromYard(context, services_,
                        [this, caller, response, page_size](const core::Yard& yard) {
                          for (const JobId job : yard.QueueFront()) {
                            if (response->jobs_size() == page_size) break;
                            const auto view = services_.board.FindJob(job);
                            if (view == nullptr || !MaySee(caller, services_, view->record))
                              continue;
                            *response->add_jobs() = ShownJob(services_, *view);
                          }
                          for (const auto& [key, tally] : services_.board.Tallies()) {
                            response->set_queued_jobs(response->queued_jobs() + tally.queued_jobs);
                          }
                          return absl::OkStatus();
                        });
}

grpc::ServerUnaryReactor* JobServiceImpl::DiffJobs(const access::Caller& caller,
                                                   grpc::CallbackServerContext* context,
                                                   const v1::DiffJobsRequest* request,
                                                   v1::DiffJobsResponse* response) {
  RequestCheck check;
  const JobId left = check.Job("left", request->left());
  const JobId right = check.Job("right", request->right());
  if (!check.ok()) return Refused(context, check);
  return FinishFromYard(context, services_, [=, this](const core::Yard& yard) -> absl::Status {
    TY_ASSIGN_OR_RETURN(const v1::JobSpec left_spec, SpecOf(caller, services_, yard, left));
    TY_ASSIGN_OR_RETURN(const v1::JobSpec right_spec, SpecOf(caller, services_, yard, right));
    for (const auto& difference : spec::DiffSpecs(left_spec, right_spec)) {
      *response->add_differences() = ToProto(difference);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListAttempts(const access::Caller&,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::ListAttemptsRequest* request,
                                                       v1::ListAttemptsResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("parent", request->parent());
  if (!check.ok()) return Refused(context, check);
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());
  for (const auto& attempt : services_.board.AttemptsOf(job)) {
    *response->add_attempts() = ToProto(*attempt);
  }
  return FinishAfter(context, services_.executor, [this, job, response] {
    AddEnvironments(services_.logs, job, *response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListEvents(const access::Caller&,
                                                     grpc::CallbackServerContext* context,
                                                     const v1::ListEventsRequest* request,
                                                     v1::ListEventsResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("parent", request->parent());
  const int page_size =
      check.PageSize("page_size", request->page_size(), kEventsPageDefault, kEventsPageMax);
  const int64_t after = check.PageToken("page_token", request->page_token());
  if (!check.ok()) return Refused(context, check);
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());
  return FinishAfter(context, services_.executor, [this, view = *view, after, page_size, response] {
    return ListHistory(services_.store, view->record, after, page_size, *response);
  });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobServiceImpl::WatchJobs(
    const access::Caller& caller, const v1::WatchJobsRequest* request) {
  return StartWatchJobs(services_, messages_, caller, *request);
}

grpc::ServerWriteReactor<v1::TailLogsResponse>* JobServiceImpl::TailLogs(
    const access::Caller& caller, const v1::TailLogsRequest* request) {
  return StartTailLogs(services_, caller, *request);
}

grpc::ServerWriteReactor<v1::WatchMetricsResponse>* JobServiceImpl::WatchMetrics(
    const access::Caller& caller, const v1::WatchMetricsRequest* request) {
  return StartWatchMetrics(services_, caller, *request);
}

grpc::ServerUnaryReactor* JobServiceImpl::QueryMetrics(const access::Caller&,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::QueryMetricsRequest* request,
                                                       v1::QueryMetricsResponse* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  check.NotNegative("max_points", request->max_points());
  check.MaxCount("metrics", request->metrics_size(), kPointsMax);
  if (!check.ok()) return Refused(context, check);
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());
  return FinishAfter(context, services_.metric_reads, [this, request, response, job] {
    return QuerySeries(services_.metrics, job, *request, *response);
  });
}

}  // namespace trainyard::rpc
