// The text of a token is shown once, and only its hash is stored.
#include "server/rpc/invitation.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::rpc {
namespace {

// The name under which the tokens of pilots are listed.
constexpr char kOfPilots[] = "provisioner";

absl::StatusOr<access::NewToken> Make(SignIn& sign_in, store::AccessStore& store,
                                      const std::string& user, const std::string& worker,
                                      absl::Time now, absl::Duration lifetime) {
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

}  // namespace

absl::StatusOr<access::NewToken> Invite(SignIn& sign_in, store::AccessStore& store,
                                        const std::string& user, const std::string& worker,
                                        absl::Duration lifetime) {
  const absl::Time now = sign_in.clock->Now();
  TY_RETURN_IF_ERROR(sign_in.tokens.CheckRoom(user, now));
  return Make(sign_in, store, user, worker, now, lifetime);
}

absl::StatusOr<access::NewToken> InviteOfPilot(SignIn& sign_in, store::AccessStore& store,
                                               const std::string& worker, absl::Duration lifetime) {
  const absl::Time now = sign_in.clock->Now();
  TY_RETURN_IF_ERROR(sign_in.tokens.CheckRoom(/*user=*/"", now));
  return Make(sign_in, store, kOfPilots, worker, now, lifetime);
}

void RevokeInvitations(SignIn& sign_in, store::AccessStore& store,
                       const std::function<bool(const std::string& worker)>& is_over) {
  const absl::Time now = sign_in.clock->Now();
  for (const access::TokenRecord& record : sign_in.tokens.List(/*user=*/"")) {
    const bool is_valid = !record.revoked.has_value() && now < record.expires;
    if (record.kind != access::TokenKind::kJoin || !is_valid || !is_over(record.worker)) continue;
    const auto revoked = sign_in.tokens.Revoke(record.id, now);
    if (!revoked.ok()) continue;
    const absl::Status stored = store.PutToken(*revoked);
    if (!stored.ok()) {
      LogWarning("an invitation is revoked until the next start only",
                 {{"worker", record.worker}, {"error", std::string(stored.message())}});
    }
  }
}

}  // namespace trainyard::rpc
