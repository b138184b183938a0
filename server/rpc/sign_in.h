// Signs in callers of other hosts, whom no kernel vouches for: users by tokens, and workers that
// join by invitations. For pods of a cluster of Kubernetes, its own tokens serve as either.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "grpcpp/server_context.h"
#include "server/access/caller.h"
#include "server/access/peer.h"
#include "server/access/pod.h"
#include "server/access/pod_token_ends.h"
#include "server/access/removed_workers.h"
#include "server/access/sign_in_delay.h"
#include "server/access/tokens.h"

namespace trainyard::rpc {

// A certificate that was made for a worker.
struct WorkerCertificate {
  std::string pem;
  std::string key_fingerprint;  // says whose it is: see tls::Certificate
};

// Holds what handlers need to know of the port for other hosts. Any thread may call its functions.
struct SignIn {
  access::TokenTable tokens;
  access::RemovedWorkers removed_workers;
  access::SignInDelay delay;
  Clock* clock = Clock::Real();
  // Returns what the system said of a user, by name: groups, and so the role. It does not block.
  std::function<access::Peer(const std::string& user)> user_of_system =
      [](const std::string& user) {
        access::Peer peer;
        peer.user = user;
        return peer;
      };
  // Asks the system for a user. It may block.
  std::function<void(const std::string& user)> learn_user = [](const std::string&) {};
  // Signs the request of a worker for a certificate. It is not set without a port of TLS.
  std::function<absl::StatusOr<WorkerCertificate>(absl::string_view request,
                                                  absl::string_view worker)>
      sign_worker;
  // Has a cluster look at the token of a pod, and calls `done` once then, at once or later. It does
  // not block. Neither this nor the next one is set without a cluster.
  std::function<void(absl::string_view token, access::PodUse use, absl::string_view address,
                     std::function<void()> done)>
      learn_pod;
  // Returns what the cluster has said of a token, without blocking.
  std::function<absl::StatusOr<access::PodIdentity>(absl::string_view token, access::PodUse use)>
      find_pod;
  access::PodTokenEnds pod_token_ends;
  // The role of pods that sign in, until another one is set for their user. The system is not asked
  // for them: whoever names service accounts must not choose a user of the system.
  access::Role role_of_pods = access::Role::kNone;
  // Returns the fingerprint that clients pin.
  std::function<std::string()> fingerprint;
  // The addresses of the port.
  std::vector<std::string> addresses;
};

// Returns the token that comes with a call as `authorization: Bearer TOKEN`, or "".
absl::string_view BearerToken(const grpc::ServerContextBase& context);
// Returns the same of the metadata of a call.
absl::string_view BearerTokenOf(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata);
// Returns by what a token is named without being told: the beginning of its digest.
std::string TokenId(absl::string_view token);

// Answers a failed sign-in: with its own error, or, after several from the same address, with
// RESOURCE_EXHAUSTED and the time to wait, which does not tell what was wrong.
absl::Status SlowDown(SignIn& sign_in, absl::string_view address, const absl::Status& failure);

// Does the same for the token of a pod. A cluster that gives no answer is not the caller's failure.
absl::Status SlowDownRefusal(SignIn& sign_in, absl::string_view address,
                             const absl::Status& failure);

// Returns true if a cluster has to vouch for the token.
bool IsTokenOfPod(const SignIn& sign_in, absl::string_view token);

// Says who a caller is that is known by a token alone, and how far its scope limits the role.
// Returns what is known of its user.
absl::StatusOr<access::Peer> SignInByToken(const grpc::ServerContextBase& context, SignIn& sign_in,
                                           access::Caller& caller);

}  // namespace trainyard::rpc
