// Makes join tokens, with which workers of other hosts get their certificates.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/tokens.h"
#include "server/rpc/sign_in.h"
#include "server/store/access_store.h"

namespace trainyard::rpc {

// Makes a token that is good once, and stores it. `worker` is the name that the worker must have;
// empty for any. Blocks on the disk. Returns RESOURCE_EXHAUSTED if `user` has too many tokens.
absl::StatusOr<access::NewToken> Invite(SignIn& sign_in, store::AccessStore& store,
                                        const std::string& user, const std::string& worker,
                                        absl::Duration lifetime);

// Makes one for the worker of a pilot. It counts for no user, since the number of pilots is
// bounded.
absl::StatusOr<access::NewToken> InviteOfPilot(SignIn& sign_in, store::AccessStore& store,
                                               const std::string& worker, absl::Duration lifetime);

// Revokes the join tokens of the workers for whom `is_over` returns true. Blocks on the disk; one
// that cannot be stored is revoked until the next start.
void RevokeInvitations(SignIn& sign_in, store::AccessStore& store,
                       const std::function<bool(const std::string& worker)>& is_over);

}  // namespace trainyard::rpc
