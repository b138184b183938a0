// Makes join tokens, with which workers of other hosts get their certificates.
#pragma once

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

}  // namespace trainyard::rpc
