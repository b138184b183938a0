// Revokes in memory first, so that the worker's calls fail from there on, and then on disk.
#include "server/rpc/revoke_certificate.h"

#include <algorithm>

#include "common/base/worker_name.h"
#include "server/rpc/access_service.h"
#include "server/rpc/answers.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

bool HasJoined(const Services& services, const std::string& worker) {
  const auto tokens = services.sign_in->tokens.List("");
  return std::any_of(tokens.begin(), tokens.end(), [&worker](const access::TokenRecord& token) {
    return token.kind == access::TokenKind::kJoin && token.worker == worker &&
           token.revoked.has_value();
  });
}

}  // namespace

absl::Status RevokeCertificates(Services& services, const std::string& worker) {
  SignIn& sign_in = *services.sign_in;
  const auto removed = sign_in.removed_workers.Remove(worker, sign_in.clock->Now());
  const auto ended = sign_in.tokens.EndJoins(worker);
  services.connections.EndOfWorker(worker);
  absl::Status stored = services.access_store.PutRemovedWorker(removed);
  for (const access::TokenRecord& token : ended) {
    stored.Update(services.access_store.PutToken(token));
  }
  return stored;
}

grpc::ServerUnaryReactor* AccessServiceImpl::RevokeCertificate(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::RevokeCertificateRequest* request, v1::RevokeCertificateResponse* response) {
  RequestCheck check;
  if (!IsWorkerName(request->worker())) {
    check.Add("worker", "is no name of a worker; expected [a-z0-9-]{1,63}");
  }
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto revoke = [this, reactor, worker = request->worker()] {
    reactor->Finish(ToGrpcStatus(RevokeCertificates(services_, worker)));
  };
  services_.runtime.Read(
      [this, reactor, request, response, revoke](absl::StatusOr<const core::Yard*> yard) {
        absl::Status status = yard.status();
        if (yard.ok()) {
          const std::string& worker = request->worker();
          response->set_is_known((*yard)->FindWorker(worker) != nullptr ||
                                 HasJoined(services_, worker));
          status = changes_.TryPost(revoke);
        }
        if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
      });
  return reactor;
}

}  // namespace trainyard::rpc
