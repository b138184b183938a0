// Looks tokens up. A valid token is served at once, whoever else has failed at the same address.
#include "server/rpc/sign_in.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/token_form.h"
#include "common/tls/digest.h"

namespace trainyard::rpc {
namespace {

constexpr char kAuthorization[] = "authorization";

access::Role Cap(access::TokenScope scope) {
  switch (scope) {
    case access::TokenScope::kRead:
      return access::Role::kViewer;
    case access::TokenScope::kSubmit:
      return access::Role::kSubmitter;
    case access::TokenScope::kFull:
      break;
  }
  return access::Role::kAdmin;
}

absl::StatusOr<access::Peer> SignInPod(absl::string_view token, SignIn& sign_in,
                                       access::Caller& caller) {
  const auto pod = sign_in.find_pod(token, access::PodUse::kClient);
  if (!pod.ok()) return SlowDownRefusal(sign_in, caller.address, pod.status());
  caller.user = pod->user;
  caller.token = TokenId(token);
  caller.token_end_us = absl::ToUnixMicros(pod->expires);
  sign_in.pod_token_ends.Note(caller.token, pod->expires);
  access::Peer peer;
  peer.user = pod->user;
  peer.role = sign_in.role_of_pods;
  return peer;
}

}  // namespace

absl::string_view BearerToken(const grpc::ServerContextBase& context) {
  return BearerTokenOf(context.client_metadata());
}

absl::string_view BearerTokenOf(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  const auto found = metadata.find(kAuthorization);
  if (found == metadata.end()) return "";
  absl::string_view value(found->second.data(), found->second.size());
  if (!absl::StartsWithIgnoreCase(value, "bearer ")) return "";
  value.remove_prefix(7);
  return value;
}

absl::Status SlowDown(SignIn& sign_in, absl::string_view address, const absl::Status& failure) {
  const absl::Duration wait = sign_in.delay.Failed(address, sign_in.clock->Uptime());
  if (wait <= absl::ZeroDuration()) return failure;
  absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted, "SIGN_IN_DELAYED",
                absl::StrCat("too many sign-ins have failed from your address; try again in ",
                             DurationText(absl::Ceil(wait, absl::Seconds(1)))));
  SetRetryDelay(status, wait);
  return status;
}

absl::Status SlowDownRefusal(SignIn& sign_in, absl::string_view address,
                             const absl::Status& failure) {
  const bool is_refused = absl::IsUnauthenticated(failure) || absl::IsPermissionDenied(failure);
  return is_refused ? SlowDown(sign_in, address, failure) : failure;
}

bool IsTokenOfPod(const SignIn& sign_in, absl::string_view token) {
  return sign_in.find_pod && IsPodTokenForm(token);
}

std::string TokenId(absl::string_view token) {
  return access::IdOfTokenHash(tls::Sha256(token));
}

absl::StatusOr<access::Peer> SignInByToken(const grpc::ServerContextBase& context, SignIn& sign_in,
                                           access::Caller& caller) {
  const absl::string_view text = BearerToken(context);
  if (text.empty()) {
    return MakeError(absl::StatusCode::kUnauthenticated, "NOT_SIGNED_IN",
                     "you are not signed in; make a token on the server's host (`trainyard tokens "
                     "create`), and sign in with it (`trainyard login`)");
  }
  if (IsTokenOfPod(sign_in, text)) return SignInPod(text, sign_in, caller);
  const auto token = sign_in.tokens.Use(text, access::TokenKind::kUser, sign_in.clock->Now());
  if (!token.ok()) return SlowDown(sign_in, caller.address, token.status());
  caller.user = token->user;
  caller.token = token->id;
  caller.token_end_us = absl::ToUnixMicros(token->expires);
  caller.token_cap = Cap(token->scope);
  return sign_in.user_of_system(caller.user);
}

}  // namespace trainyard::rpc
