// Implements the handlers that submit jobs and change them. Those that only read are in
// job_queries.cc.
#include "server/rpc/job_service.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "server/rpc/answers.h"
#include "server/rpc/cancel_jobs.h"
#include "server/rpc/convert.h"
#include "server/rpc/create_jobs.h"
#include "server/rpc/decisions.h"
#include "server/rpc/limits.h"
#include "server/rpc/offers.h"
#include "server/rpc/request.h"
#include "server/rpc/submission.h"

namespace trainyard::rpc {
namespace {

// A verb on one job, as it stands in its request.
struct JobVerb {
  JobId job;
  std::string actor;
};

template <typename Request>
JobVerb ReadVerb(const access::Caller& caller, const Request& request, RequestCheck& check) {
  const JobId job = check.Job("name", request.name());
  if constexpr (requires { request.reason(); }) {
    check.MaxBytes("reason", request.reason(), kReasonBytesMax);
  }
  return {job, UserActor(caller.user)};
}

// Answers with a job that nobody has submitted, and what would become of it.
grpc::ServerUnaryReactor* FinishWithPreview(grpc::CallbackServerContext* context,
                                            Services& services,
                                            std::shared_ptr<const core::Submission> submission,
                                            v1::Job* response) {
  return FinishFromYard(context, services,
                        [response, submission = std::move(submission),
                         &runtime = services.runtime](const core::Yard& yard) -> absl::Status {
                          const core::Now now = runtime.Now();
                          TY_ASSIGN_OR_RETURN(const auto warnings, yard.Admit(*submission, now));
                          const auto accept = AcceptIfSubmittable(*submission, yard, now);
                          *response = PreviewOf(
                              *submission, ToProto(yard.Preview(*submission, now, accept), now));
                          for (const std::string& warning : warnings)
                            response->add_warnings(warning);
                          return absl::OkStatus();
                        });
}

// Answers with the job as it is once the input is on disk.
grpc::ServerUnaryReactor* FinishWithJob(grpc::CallbackServerContext* context, Services& services,
                                        core::Input input, v1::Job* response) {
  return FinishWhenDone(
      context, services, std::move(input),
      [&board = services.board, response](const core::Reply& reply) -> absl::Status {
        TY_ASSIGN_OR_RETURN(const auto view, FindJob(board, reply.job));
        *response = ToProto(*view);
        for (const std::string& warning : reply.warnings) response->add_warnings(warning);
        return absl::OkStatus();
      });
}

// Answers a submission for which something is missing. It may have been deleted since the same
// request was acknowledged; then the job that it made is the answer.
template <typename Request>
grpc::ServerUnaryReactor* FinishWithoutReference(grpc::CallbackServerContext* context,
                                                 Services& services, const Request& request,
                                                 const absl::Status& status, v1::Job* response) {
  const bool may_be_repeated =
      absl::IsNotFound(status) && !request.request_id().empty() && !request.validate_only();
  if (!may_be_repeated) return Finished(context, status);
  return FinishFromYard(
      context, services,
      [&board = services.board, id = request.request_id(), hash = HashOf(request), status,
       response](const core::Yard& yard) -> absl::Status {
        const auto known = yard.snapshot().requests.find(id);
        if (known == yard.snapshot().requests.end() || known->second.request_hash != hash) {
          return status;
        }
        TY_ASSIGN_OR_RETURN(const auto view, FindJob(board, known->second.job));
        *response = ToProto(*view);
        return absl::OkStatus();
      });
}

}  // namespace

JobServiceImpl::JobServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* JobServiceImpl::CreateJob(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::CreateJobRequest* request,
                                                    v1::Job* response) {
  RequestCheck check;
  Decisions decisions(access::RuleOf("JobService/CreateJob"), caller, services_,
                      ResourcesOf(*request), request->validate_only());
  auto input = SubmissionOf(*request, caller, services_, check, decisions);
  decisions.Write();
  if (!input.ok()) {
    return FinishWithoutReference(context, services_, *request, input.status(), response);
  }
  if (request->validate_only()) {
    return FinishWithPreview(context, services_, input->submission, response);
  }
  return FinishWithJob(context, services_, *std::move(input), response);
}

grpc::ServerBidiReactor<v1::CreateJobsRequest, v1::CreateJobsResponse>* JobServiceImpl::CreateJobs(
    grpc::CallbackServerContext* context) {
  const auto caller =
      Admit(access::RuleOf("JobService/CreateJobs"), *context, services_, {}, /*is_trial=*/false);
  return caller.ok() ? StartCreateJobs(services_, *caller) : FailedCreateJobs(caller.status());
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::CancelJobRequest* request,
                                                    v1::Job* response) {
  RequestCheck check;
  const JobVerb verb = ReadVerb(caller, *request, check);
  if (!check.ok()) return Refused(context, check);
  return FinishWithJob(context, services_, core::CancelJob{verb.job, verb.actor, request->reason()},
                       response);
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJobs(const access::Caller& caller,
                                                     grpc::CallbackServerContext* context,
                                                     const v1::CancelJobsRequest* request,
                                                     v1::CancelJobsResponse* response) {
  RequestCheck check;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  StartCancelJobs(services_, *request, caller, check, reactor, response);
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::SuspendJob(const access::Caller& caller,
                                                     grpc::CallbackServerContext* context,
                                                     const v1::SuspendJobRequest* request,
                                                     v1::Job* response) {
  RequestCheck check;
  const JobVerb verb = ReadVerb(caller, *request, check);
  if (!check.ok()) return Refused(context, check);
  return FinishWithJob(context, services_,
                       core::SuspendJob{verb.job, verb.actor, request->reason()}, response);
}

grpc::ServerUnaryReactor* JobServiceImpl::ResumeJob(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::ResumeJobRequest* request,
                                                    v1::Job* response) {
  RequestCheck check;
  const JobVerb verb = ReadVerb(caller, *request, check);
  if (!check.ok()) return Refused(context, check);
  return FinishWithJob(context, services_, core::ResumeJob{verb.job, verb.actor}, response);
}

grpc::ServerUnaryReactor* JobServiceImpl::CloneJob(const access::Caller& caller,
                                                   grpc::CallbackServerContext* context,
                                                   const v1::CloneJobRequest* request,
                                                   v1::CloneJobResponse* response) {
  RequestCheck check;
  Decisions decisions(access::RuleOf("JobService/CloneJob"), caller, services_,
                      ResourcesOf(*request), request->validate_only());
  const JobId job = check.Job("name", request->name());
  if (!check.ok()) return Refused(context, check);
  const auto original = FindJob(services_.board, job);
  if (!original.ok()) {
    return FinishWithoutReference(context, services_, *request, original.status(),
                                  response->mutable_job());
  }
  auto clone = CloneOf(*request, **original, caller, services_, check, decisions);
  decisions.Write();
  if (!clone.ok()) {
    return FinishWithoutReference(context, services_, *request, clone.status(),
                                  response->mutable_job());
  }
  for (v1::SpecDifference& difference : clone->differences) {
    *response->add_differences() = std::move(difference);
  }
  if (request->validate_only()) {
    return FinishWithPreview(context, services_, clone->input.submission, response->mutable_job());
  }
  return FinishWithJob(context, services_, std::move(clone->input), response->mutable_job());
}

}  // namespace trainyard::rpc
