// Implements AgentService.FetchSecrets. It is the only call that returns the value of a secret, and
// each use of it has an entry in the audit log, with the attempt and no name or value.
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/rpc/agent_service.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/decisions.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

// Returns OK if the session's worker is to run ranks of the attempt.
absl::Status CheckPlaced(const core::Yard& yard, const v1::FetchSecretsRequest& request,
                         AttemptId attempt) {
  TY_RETURN_IF_ERROR(yard.CheckStream(request.session(), attempt, request.fencing_token()));
  TY_ASSIGN_OR_RETURN(const std::string worker, yard.WorkerOfSession(request.session()));
  const core::AttemptRecord* record = yard.FindAttempt(attempt);
  if (record == nullptr) return error::AttemptNotFound(request.attempt());
  const core::AttemptPart* part = core::FindPart(*record, worker);
  if (part == nullptr || core::attempt_fsm::IsFinal(record->state)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_PLACED_HERE",
                     absl::StrCat(request.attempt(), " does not run on worker '", worker, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AgentServiceImpl::ReadSecrets(AttemptId attempt, v1::FetchSecretsResponse& response) {
  const auto view = services_.board.FindJob(attempt.job);
  if (view == nullptr) return error::JobNotFound(JobName(attempt.job));
  const v1::JobSpec spec = ResolvedSpecOf(view->record);
  for (const std::string& name : spec.program().secrets()) {
    if (services_.secrets == nullptr) return absl::UnavailableError("this server has no secrets");
    TY_ASSIGN_OR_RETURN((*response.mutable_secrets())[name],
                        services_.secrets->Read(view->record.submission->user, name));
  }
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AgentServiceImpl::FetchSecrets(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::FetchSecretsRequest* request,
                                                         v1::FetchSecretsResponse* response) {
  const access::Rule& rule = access::RuleOf("AgentService/FetchSecrets");
  if (const absl::Status own = sessions_.Check(caller, request->session()); !own.ok()) {
    return Finished(context, own);
  }
  RequestCheck check;
  check.NotEmpty("session", request->session());
  const AttemptId attempt = check.Attempt("attempt", request->attempt());
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  CheckThenWork(
      reactor,
      [this, &rule, caller, request, attempt](const core::Yard& yard) -> absl::Status {
        const absl::Status placed = CheckPlaced(yard, *request, attempt);
        if (!placed.ok()) WriteDecision(rule, caller, services_, request->attempt(), placed);
        return placed;
      },
      services_.executor,
      [this, &rule, caller, reactor, request, response, attempt] {
        const absl::Status read = ReadSecrets(attempt, *response);
        if (!read.ok()) response->Clear();
        WriteDecision(rule, caller, services_, request->attempt(), read);
        reactor->Finish(ToGrpcStatus(read));
      });
  return reactor;
}

}  // namespace trainyard::rpc
