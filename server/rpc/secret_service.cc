// Converts between the messages and the store of secrets.
#include "server/rpc/secret_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/notify_checks.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

v1::Secret SecretToProto(const store::SecretInfo& info) {
  v1::Secret secret;
  secret.set_name(info.name);
  secret.set_size(info.size);
  *secret.mutable_create_time() = ToTimestamp(absl::ToUnixMicros(info.created));
  *secret.mutable_update_time() = ToTimestamp(absl::ToUnixMicros(info.updated));
  return secret;
}

void CheckSecretName(const std::string& name, RequestCheck& check) {
  if (spec::IsSecretName(name)) return;
  check.Add("name",
            absl::StrCat("'", name.substr(0, 64),
                         "' is no name of a secret; expected a letter or '_', then letters, "
                         "digits, '_', '.' and '-', at most 63"));
}

absl::Status NoSecrets() {
  return absl::UnavailableError("this server keeps no secrets");
}

}  // namespace

SecretServiceImpl::SecretServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* SecretServiceImpl::SetSecret(const access::Caller& caller,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::SetSecretRequest* request,
                                                       v1::Secret* response) {
  if (services_.secrets == nullptr) return Finished(context, NoSecrets());
  RequestCheck check;
  CheckSecretName(request->name(), check);
  check.NotEmpty("value", request->value());
  check.MaxBytes("value", request->value(), store::kSecretBytesMax);
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, user = caller.user, request, response] {
    const auto info = services_.secrets->Put(user, request->name(), request->value(),
                                             services_.sign_in->clock->Now());
    if (info.ok()) *response = SecretToProto(*info);
    return info.status();
  });
}

grpc::ServerUnaryReactor* SecretServiceImpl::ListSecrets(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::ListSecretsRequest*,
                                                         v1::ListSecretsResponse* response) {
  if (services_.secrets == nullptr) return Finished(context, NoSecrets());
  for (const store::SecretInfo& info : services_.secrets->List(caller.user)) {
    *response->add_secrets() = SecretToProto(info);
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* SecretServiceImpl::DeleteSecret(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::DeleteSecretRequest* request,
                                                          v1::DeleteSecretResponse*) {
  if (services_.secrets == nullptr) return Finished(context, NoSecrets());
  RequestCheck check;
  CheckSecretName(request->name(), check);
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, user = caller.user, request] {
    return services_.secrets->Delete(user, request->name());
  });
}

}  // namespace trainyard::rpc
