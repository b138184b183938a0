// Implements SpecService: the catalogue of saved specs.
#pragma once

#include <string>

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "server/runtime/executor.h"
#include "trainyard/v1/catalogue.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class SpecServiceImpl : public v1::SpecService::CallbackService {
 public:
  explicit SpecServiceImpl(Services& services);

  TY_UNARY_RPC(SpecService, SaveSpec, SaveSpecRequest, SavedSpec);
  TY_UNARY_RPC(SpecService, GetSavedSpec, GetSavedSpecRequest, SavedSpec);
  TY_UNARY_RPC(SpecService, ListSavedSpecs, ListSavedSpecsRequest, ListSavedSpecsResponse);
  TY_UNARY_RPC(SpecService, DeleteSavedSpec, DeleteSavedSpecRequest, DeleteSavedSpecResponse);

 private:
  // Returns what the request wants to save, or why it cannot be saved.
  absl::StatusOr<v1::SavedSpec> SourceOf(const access::Caller& caller,
                                         const v1::SaveSpecRequest& request);
  // Returns PERMISSION_DENIED (NOT_OWNER) if the name is somebody else's.
  absl::Status CheckOwner(const access::Caller& caller, const std::string& name) const;

  Services& services_;
  // One change after the other; a flood of them delays nothing else.
  runtime::Executor changes_{1, 256};
};

}  // namespace trainyard::rpc
