// The text of a token is shown once, and only its hash is stored.
#include "server/rpc/invitation.h"

#include <utility>

#include "common/base/status_macros.h"

namespace trainyard::rpc {

absl::StatusOr<access::NewToken> Invite(SignIn& sign_in, store::AccessStore& store,
                                        const std::string& user, const std::string& worker,
                                        absl::Duration lifetime) {
  const absl::Time now = sign_in.clock->Now();
  TY_RETURN_IF_ERROR(sign_in.tokens.CheckRoom(user, now));
  access::TokenRecord draft;
  draft.kind = access::TokenKind::kJoin;
  draft.user = user;
  draft.worker = worker;
  draft.expires = now + lifetime;
  access::NewToken made = access::MakeToken(std::move(draft), now);
  TY_RETURN_IF_ERROR(store.PutToken(made.record));
  sign_in.tokens.Add(made.record);
  return made;
}

}  // namespace trainyard::rpc
