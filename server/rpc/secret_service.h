// Implements SecretService: the secrets of the caller, whose values no call returns.
#pragma once

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "server/runtime/executor.h"
#include "trainyard/v1/secret.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class SecretServiceImpl : public v1::SecretService::CallbackService {
 public:
  explicit SecretServiceImpl(Services& services);

  TY_UNARY_RPC(SecretService, SetSecret, SetSecretRequest, Secret);
  TY_UNARY_RPC(SecretService, ListSecrets, ListSecretsRequest, ListSecretsResponse);
  TY_UNARY_RPC(SecretService, DeleteSecret, DeleteSecretRequest, DeleteSecretResponse);

 private:
  Services& services_;
  // One change after the other; a flood of them delays nothing else.
  runtime::Executor changes_{1, 256};
};

}  // namespace trainyard::rpc
