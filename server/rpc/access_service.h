// Implements AccessService, which shows and sets who may do what. Changes are written to the store
// first, then to the directory that all calls look at.
#pragma once

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "server/runtime/executor.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class AccessServiceImpl : public v1::AccessService::CallbackService {
 public:
  explicit AccessServiceImpl(Services& services);

  TY_UNARY_RPC(AccessService, WhoAmI, WhoAmIRequest, WhoAmIResponse);
  TY_UNARY_RPC(AccessService, ListUsers, ListUsersRequest, ListUsersResponse);
  TY_UNARY_RPC(AccessService, SetUser, SetUserRequest, User);
  TY_UNARY_RPC(AccessService, DeleteUser, DeleteUserRequest, DeleteUserResponse);
  TY_UNARY_RPC(AccessService, ListProjects, ListProjectsRequest, ListProjectsResponse);
  TY_UNARY_RPC(AccessService, SetProject, SetProjectRequest, Project);
  TY_UNARY_RPC(AccessService, DeleteProject, DeleteProjectRequest, DeleteProjectResponse);
  TY_UNARY_RPC(AccessService, CreateToken, CreateTokenRequest, CreateTokenResponse);
  TY_UNARY_RPC(AccessService, ListTokens, ListTokensRequest, ListTokensResponse);
  TY_UNARY_RPC(AccessService, RevokeToken, RevokeTokenRequest, Token);
  TY_UNARY_RPC(AccessService, InviteWorker, InviteWorkerRequest, InviteWorkerResponse);
  TY_UNARY_RPC(AccessService, RevokeCertificate, RevokeCertificateRequest,
               RevokeCertificateResponse);
  TY_UNARY_RPC(AccessService, ListAuditEntries, ListAuditEntriesRequest, ListAuditEntriesResponse);

 private:
  Services& services_;
  // One change after the other, so that store and directory agree.
  runtime::Executor changes_{1};
};

}  // namespace trainyard::rpc
