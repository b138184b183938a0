// Implements the calls by which workers of other hosts get certificates.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/worker_name.h"
#include "server/rpc/agent_service.h"
#include "server/rpc/answers.h"
#include "server/rpc/decisions.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

// Returns the error of an invitation that is for another worker, or for a new one. Of one that was
// used up, UseUp finds out whether the same worker comes again.
absl::Status CheckInvited(const access::TokenRecord& invitation, const std::string& worker,
                          const core::Yard& yard) {
  if (!invitation.joined_key.empty()) return absl::OkStatus();
  if (invitation.worker == worker) return absl::OkStatus();
  if (!invitation.worker.empty()) {
    return MakeError(absl::StatusCode::kPermissionDenied, "INVITED_AS_ANOTHER",
                     absl::StrCat("the invitation is for worker '", invitation.worker,
                                  "', not for '", worker, "'"));
  }
  if (yard.snapshot().workers.find(worker) == yard.snapshot().workers.end()) {
    return absl::OkStatus();
  }
  return error::WorkerNameTaken(
      worker, absl::StrCat("an invitation without a name takes no worker's place; invite it by "
                           "name: trainyard workers invite ",
                           worker));
}

// Returns the invitation that a token is, if it may be used. The token of a pod is an invitation
// for the one worker that comes with it first, if that has a name that the cluster vouches for.
absl::StatusOr<access::TokenRecord> FindInvitation(SignIn& sign_in, absl::string_view token,
                                                   const std::string& worker) {
  if (!IsTokenOfPod(sign_in, token)) {
    return sign_in.tokens.FindInvitation(token, sign_in.clock->Now());
  }
  TY_ASSIGN_OR_RETURN(const access::PodIdentity pod,
                      sign_in.find_pod(token, access::PodUse::kWorker));
  if (!pod.workers.contains(worker)) {
    return MakeError(
        absl::StatusCode::kPermissionDenied, "INVITED_AS_ANOTHER",
        absl::StrCat("the token of the pod is for worker '", absl::StrJoin(pod.workers, "' or '"),
                     "', not for '", worker, "'"));
  }
  access::TokenRecord invitation;
  invitation.kind = access::TokenKind::kJoin;
  invitation.user = pod.account;
  invitation.worker = worker;
  invitation.expires = pod.expires;
  return invitation;
}

// Uses the invitation up. If several come with the same one, only one passes this.
absl::StatusOr<access::TokenRecord> UseUp(SignIn& sign_in, const std::string& token,
                                          const access::TokenRecord& invitation,
                                          const std::string& worker, const std::string& key) {
  const absl::Time now = sign_in.clock->Now();
  if (!IsTokenOfPod(sign_in, token)) return sign_in.tokens.UseUp(token, worker, key, now);
  return sign_in.tokens.UseUpOfPod(token, invitation.user, invitation.expires, worker, key, now);
}

}  // namespace

grpc::ServerUnaryReactor* AgentServiceImpl::JoinWorker(const access::Caller& caller,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::JoinWorkerRequest* request,
                                                       v1::JoinWorkerResponse* response) {
  SignIn& sign_in = *services_.sign_in;
  if (!sign_in.sign_worker) {
    return Finished(context, MakeError(absl::StatusCode::kFailedPrecondition, "NO_TLS",
                                       "this server gives no certificates, since it has no port "
                                       "for other hosts"));
  }
  const std::string token(BearerToken(*context));
  const auto known = FindInvitation(sign_in, token, request->worker());
  const auto note = [this, caller, worker = request->worker()](const absl::Status& decision) {
    WriteDecision(access::RuleOf("AgentService/JoinWorker"), caller, services_, worker, decision);
  };
  if (!known.ok()) {
    const absl::Status refused = SlowDownRefusal(sign_in, caller.address, known.status());
    note(refused);
    return Finished(context, refused);
  }
  RequestCheck check;
  if (!IsWorkerName(request->worker())) {
    check.Add("worker", "is no name of a worker; expected [a-z0-9-]{1,63}");
  }
  if (!check.ok()) return Refused(context, check);
  // A mistake in the request does not use the invitation up.
  auto certificate = sign_in.sign_worker(request->certificate_request(), request->worker());
  if (!certificate.ok()) return Finished(context, certificate.status());
  response->set_certificate(std::move(certificate->pem));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const YardCheck is_invited = [invitation = *known, worker = request->worker(),
                                note](const core::Yard& yard) {
    absl::Status decision = CheckInvited(invitation, worker, yard);
    if (!decision.ok()) note(decision);
    return decision;
  };
  CheckThenWork(reactor, is_invited, services_.executor,
                [this, &sign_in, reactor, token, invitation = *known, request,
                 key = certificate->key_fingerprint, response, note] {
                  const auto used = UseUp(sign_in, token, invitation, request->worker(), key);
                  note(used.status());
                  absl::Status status = used.status();
                  if (status.ok()) status = services_.access_store.PutToken(*used);
                  if (!status.ok()) response->Clear();
                  reactor->Finish(ToGrpcStatus(status));
                });
  return reactor;
}

grpc::ServerUnaryReactor* AgentServiceImpl::RenewCertificate(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::RenewCertificateRequest* request, v1::RenewCertificateResponse* response) {
  if (caller.worker.empty() || !services_.sign_in->sign_worker) {
    return Finished(context, MakeError(absl::StatusCode::kFailedPrecondition, "NO_CERTIFICATE",
                                       "only a worker that has a certificate gets the next one"));
  }
  auto certificate = services_.sign_in->sign_worker(request->certificate_request(), caller.worker);
  if (certificate.ok()) response->set_certificate(std::move(certificate->pem));
  return Finished(context, certificate.status());
}

}  // namespace trainyard::rpc
