// Implements the calls of AccessService about tokens and invitations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/sign_in_errors.h"
#include "common/base/status_macros.h"
#include "common/base/worker_name.h"
#include "common/spec/interval.h"
#include "server/rpc/access_service.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/decisions.h"
#include "server/rpc/invitation.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

using access::TokenKind;
using access::TokenRecord;
using access::TokenScope;

constexpr size_t kTokenNoteBytesMax = 256;

v1::TokenScope ScopeProto(TokenScope scope) {
  switch (scope) {
    case TokenScope::kRead:
      return v1::TOKEN_SCOPE_READ;
    case TokenScope::kSubmit:
      return v1::TOKEN_SCOPE_SUBMIT;
    case TokenScope::kFull:
      break;
  }
  return v1::TOKEN_SCOPE_FULL;
}

TokenScope ScopeFromProto(v1::TokenScope scope, RequestCheck& check) {
  switch (scope) {
    case v1::TOKEN_SCOPE_UNSPECIFIED:
    case v1::TOKEN_SCOPE_FULL:
      return TokenScope::kFull;
    case v1::TOKEN_SCOPE_READ:
      return TokenScope::kRead;
    case v1::TOKEN_SCOPE_SUBMIT:
      return TokenScope::kSubmit;
    default:
      check.Add("scope", "must be read, submit or full");
      return TokenScope::kRead;
  }
}

v1::Token TokenProto(const TokenRecord& record) {
  v1::Token proto;
  const auto time = [](absl::Time from) { return ToTimestamp(absl::ToUnixMicros(from)); };
  proto.set_id(record.id);
  proto.set_user(record.user);
  proto.set_scope(ScopeProto(record.scope));
  proto.set_note(record.note);
  *proto.mutable_create_time() = time(record.created);
  *proto.mutable_expire_time() = time(record.expires);
  if (record.last_used.has_value()) *proto.mutable_last_use_time() = time(*record.last_used);
  if (record.revoked.has_value()) *proto.mutable_revoke_time() = time(*record.revoked);
  proto.set_is_invitation(record.kind == TokenKind::kJoin);
  proto.set_worker(record.worker);
  return proto;
}

// A stolen token must not become one that lives longer.
absl::Status CheckMadeInPerson(const access::Caller& caller) {
  if (caller.token.empty()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied, "TOKEN_MAKES_NO_TOKEN",
                   "whoever has signed in with a token makes no further one; do this on the "
                   "server's host, or over ssh://");
}

absl::Status CheckOwnTokens(const access::Caller& caller, absl::string_view user) {
  if (user == caller.user || caller.role >= access::Role::kAdmin) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied, "NOT_ADMIN",
                   absl::StrCat("you are '", caller.user,
                                "'; only administrators see or change "
                                "tokens of others"));
}

absl::Duration LifetimeOf(const v1::CreateTokenRequest& request, RequestCheck& check) {
  if (!request.has_lifetime()) return access::kTokenLifetime;
  const absl::Duration lifetime = spec::FromProto(request.lifetime());
  if (lifetime < absl::Seconds(1) || lifetime > access::kTokenLifetimeMax) {
    check.Add("lifetime", "must be at least a second and at most 366 days");
  }
  return lifetime;
}

}  // namespace

grpc::ServerUnaryReactor* AccessServiceImpl::CreateToken(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::CreateTokenRequest* request,
                                                         v1::CreateTokenResponse* response) {
  RequestCheck check;
  TokenRecord draft;
  draft.user = request->user().empty() ? caller.user : request->user();
  if (!IsUserName(draft.user)) check.Add("user", "is no user name");
  draft.scope = ScopeFromProto(request->scope(), check);
  draft.note = request->note();
  check.MaxBytes("note", draft.note, kTokenNoteBytesMax);
  const absl::Duration lifetime = LifetimeOf(*request, check);
  Decisions decisions(access::RuleOf("AccessService/CreateToken"), caller, services_, {draft.user});
  if (!check.ok()) return Refused(context, check);
  absl::Status allowed = CheckMadeInPerson(caller);
  if (allowed.ok()) allowed = CheckOwnTokens(caller, draft.user);
  allowed = decisions.Take(allowed);
  decisions.Write();
  if (!allowed.ok()) return Finished(context, allowed);
  return FinishAfter(context, changes_,
                     [this, draft = std::move(draft), lifetime, response]() -> absl::Status {
                       SignIn& sign_in = *services_.sign_in;
                       const absl::Time now = sign_in.clock->Now();
                       TY_RETURN_IF_ERROR(sign_in.tokens.CheckRoom(draft.user, now));
                       sign_in.learn_user(draft.user);
                       TokenRecord record = draft;
                       record.expires = now + lifetime;
                       const access::NewToken made = access::MakeToken(std::move(record), now);
                       TY_RETURN_IF_ERROR(services_.access_store.PutToken(made.record));
                       sign_in.tokens.Add(made.record);
                       *response->mutable_token() = TokenProto(made.record);
                       response->set_text(made.text);
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* AccessServiceImpl::ListTokens(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::ListTokensRequest* request,
                                                        v1::ListTokensResponse* response) {
  const std::string user = request->user().empty() ? caller.user : request->user();
  Decisions decisions(access::RuleOf("AccessService/ListTokens"), caller, services_, {user});
  const absl::Status allowed =
      decisions.Take(CheckOwnTokens(caller, request->all_users() ? "" : user));
  decisions.Write();
  if (!allowed.ok()) return Finished(context, allowed);
  for (const TokenRecord& record :
       services_.sign_in->tokens.List(request->all_users() ? "" : user)) {
    *response->add_tokens() = TokenProto(record);
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AccessServiceImpl::RevokeToken(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::RevokeTokenRequest* request,
                                                         v1::Token* response) {
  Decisions decisions(access::RuleOf("AccessService/RevokeToken"), caller, services_,
                      ResourcesOf(*request));
  const auto known = services_.sign_in->tokens.Find(request->id());
  const bool may_revoke =
      known.ok() && decisions.Take(known->id, CheckOwnTokens(caller, known->user)).ok();
  decisions.Write();
  // Whoever may not change the token does not learn that there is one.
  if (!may_revoke) {
    return Finished(context, error::TokenNotFound(request->id().substr(0, 64)));
  }
  return FinishAfter(context, changes_, [this, id = known->id, response]() -> absl::Status {
    SignIn& sign_in = *services_.sign_in;
    TY_ASSIGN_OR_RETURN(const TokenRecord revoked, sign_in.tokens.Revoke(id, sign_in.clock->Now()));
    // Its calls fail from here on, even if the disk should not take the change.
    services_.streams.EndOfToken(id, error::TokenRevoked(id, *revoked.revoked));
    TY_RETURN_IF_ERROR(services_.access_store.PutToken(revoked));
    *response = TokenProto(revoked);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessServiceImpl::InviteWorker(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::InviteWorkerRequest* request,
                                                          v1::InviteWorkerResponse* response) {
  RequestCheck check;
  if (!request->worker().empty() && !IsWorkerName(request->worker())) {
    check.Add("worker", "is no name of a worker; expected [a-z0-9-]{1,63}");
  }
  Decisions decisions(access::RuleOf("AccessService/InviteWorker"), caller, services_,
                      ResourcesOf(*request));
  if (!check.ok()) return Refused(context, check);
  const absl::Status allowed = decisions.Take(CheckMadeInPerson(caller));
  decisions.Write();
  if (!allowed.ok()) return Finished(context, allowed);
  SignIn& sign_in = *services_.sign_in;
  if (!sign_in.sign_worker) {
    return Finished(context, MakeError(absl::StatusCode::kFailedPrecondition, "NO_TLS",
                                       "this server has no port for other hosts; start it with "
                                       "--listen tls:0.0.0.0:7070 beside its socket"));
  }
  return FinishAfter(context, changes_,
                     [this, &sign_in, user = caller.user, request, response]() -> absl::Status {
                       TY_ASSIGN_OR_RETURN(const access::NewToken made,
                                           Invite(sign_in, services_.access_store, user,
                                                  request->worker(), access::kJoinTokenLifetime));
                       *response->mutable_token() = TokenProto(made.record);
                       response->set_text(made.text);
                       response->set_fingerprint(sign_in.fingerprint());
                       for (const std::string& address : sign_in.addresses)
                         response->add_addresses(address);
                       return absl::OkStatus();
                     });
}

}  // namespace trainyard::rpc
