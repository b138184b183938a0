// Implements ProviderService: the clusters that are asked for workers.
#pragma once

#include "server/provision/core/step.h"
#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "server/runtime/executor.h"
#include "trainyard/v1/provider.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class ProviderServiceImpl : public v1::ProviderService::CallbackService {
 public:
  explicit ProviderServiceImpl(Services& services);

  TY_UNARY_RPC(ProviderService, CreateProvider, CreateProviderRequest, Provider);
  TY_UNARY_RPC(ProviderService, UpdateProvider, UpdateProviderRequest, Provider);
  TY_UNARY_RPC(ProviderService, GetProvider, GetProviderRequest, Provider);
  TY_UNARY_RPC(ProviderService, ListProviders, ListProvidersRequest, ListProvidersResponse);
  TY_UNARY_RPC(ProviderService, PauseProvider, PauseProviderRequest, Provider);
  TY_UNARY_RPC(ProviderService, ResumeProvider, ResumeProviderRequest, Provider);
  TY_UNARY_RPC(ProviderService, DeleteProvider, DeleteProviderRequest, DeleteProviderResponse);
  TY_UNARY_RPC(ProviderService, CancelPilot, CancelPilotRequest, Provider);

 private:
  // Lets the cluster judge a provider, keeps it unless it is only to be checked, and shows it.
  absl::Status Set(const v1::ProviderSpec& proto, bool is_new, bool validate_only,
                   v1::Provider& response);
  // Changes the state of the providers, and shows the one of that name.
  absl::Status Change(const std::string& name,
                      const std::function<absl::Status(provision::State&)>& change,
                      v1::Provider& response);

  Services& services_;
  // One change after the other. A cluster may take half a minute to answer.
  runtime::Executor changes_{1, 64};
};

}  // namespace trainyard::rpc
