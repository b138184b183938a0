// Implements the client's side of the API: one channel, its stubs, and calls that have deadlines
// and return our errors.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/link/interrupt.h"
#include "client/link/ssh_tunnel.h"
#include "common/base/errors.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/bundle.grpc.pb.h"
#include "trainyard/v1/catalogue.grpc.pb.h"
#include "trainyard/v1/checkpoint.grpc.pb.h"
#include "trainyard/v1/code.grpc.pb.h"
#include "trainyard/v1/fleet.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"
#include "trainyard/v1/notify.grpc.pb.h"
#include "trainyard/v1/provider.grpc.pb.h"
#include "trainyard/v1/secret.grpc.pb.h"
#include "trainyard/v1/sharing.grpc.pb.h"
#include "trainyard/v1/sweep_service.grpc.pb.h"
#include "trainyard/v1/tunnel.grpc.pb.h"

namespace trainyard::link {

// Unary calls take milliseconds. If one takes longer than this, the server is stuck.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(30);

// The connection of a command to its server. It borrows `interrupt` and is thread-safe.
class ServerLink {
 public:
  // Waits until the server answers, for at most `timeout`. If there is no server, it returns at
  // once. Returns SERVER_UNREACHABLE with the address and how to start a server, SERVER_NOT_ALLOWED
  // if its socket is not open to the user, and SSH_FAILED if ssh cannot reach its host. For an
  // address such as ssh://lab, ssh has a time limit of its own, and may ask the user for a
  // password. If `act_as` is given, calls are made for that user, which only administrators may do.
  static absl::StatusOr<std::unique_ptr<ServerLink>> Connect(
      const std::string& address, Interrupt& interrupt, absl::Duration timeout = absl::Seconds(10),
      const std::string& act_as = "", const rpc::TlsOptions& tls = {});

  // Returns INVALID_ARGUMENT for an address to which Connect cannot connect.
  static absl::Status CheckAddress(const std::string& address);

  // Makes a call: link.Call(&v1::JobService::Stub::GetJob, request)
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, absl::Duration timeout = kCallTimeout) {
    grpc::ClientContext context;
    SetDeadline(context, timeout);
    const Interrupt::Scope scope(interrupt_, context);
    Response response;
    Stub& stub = Get(static_cast<Stub*>(nullptr));
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return Error(status);
    return response;
  }

  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::CheckpointService::Stub& checkpoints() { return *checkpoints_; }
  v1::TunnelService::Stub& tunnels() { return *tunnels_; }
  v1::CodeService::Stub& code() { return *code_; }
  Interrupt& interrupt() { return interrupt_; }
  // Returns the channel, on which all calls are those of the user.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& address() const { return address_; }

  // Returns the error of a failed call as ours. Errors of gRPC itself that mean "no server" become
  // SERVER_UNREACHABLE.
  absl::Status Error(const grpc::Status& status) const;

 private:
  ServerLink(std::string address, std::unique_ptr<SshTunnel> tunnel,
             std::shared_ptr<grpc::Channel> channel, Interrupt& interrupt);
  static void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

  v1::JobService::Stub& Get(v1::JobService::Stub*) { return *jobs_; }
  v1::CheckpointService::Stub& Get(v1::CheckpointService::Stub*) { return *checkpoints_; }
  v1::CodeService::Stub& Get(v1::CodeService::Stub*) { return *code_; }
  v1::FleetService::Stub& Get(v1::FleetService::Stub*) { return *fleet_; }
  v1::SharingService::Stub& Get(v1::SharingService::Stub*) { return *sharing_; }
  v1::AccessService::Stub& Get(v1::AccessService::Stub*) { return *access_; }
  v1::ProviderService::Stub& Get(v1::ProviderService::Stub*) { return *providers_; }
  v1::SecretService::Stub& Get(v1::SecretService::Stub*) { return *secrets_; }
  v1::NotifyService::Stub& Get(v1::NotifyService::Stub*) { return *notify_; }
  v1::BundleService::Stub& Get(v1::BundleService::Stub*) { return *bundles_; }
  v1::SpecService::Stub& Get(v1::SpecService::Stub*) { return *specs_; }
  v1::SweepService::Stub& Get(v1::SweepService::Stub*) { return *sweeps_; }

  const std::string address_;
  // Carries the channel if the server is on another host, or is null.
  const std::unique_ptr<SshTunnel> tunnel_;
  const std::shared_ptr<grpc::Channel> channel_;
  Interrupt& interrupt_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::CheckpointService::Stub> checkpoints_;
  const std::unique_ptr<v1::CodeService::Stub> code_;
  const std::unique_ptr<v1::FleetService::Stub> fleet_;
  const std::unique_ptr<v1::SharingService::Stub> sharing_;
  const std::unique_ptr<v1::AccessService::Stub> access_;
  const std::unique_ptr<v1::ProviderService::Stub> providers_;
  const std::unique_ptr<v1::SecretService::Stub> secrets_;
  const std::unique_ptr<v1::NotifyService::Stub> notify_;
  const std::unique_ptr<v1::SpecService::Stub> specs_;
  const std::unique_ptr<v1::SweepService::Stub> sweeps_;
  const std::unique_ptr<v1::TunnelService::Stub> tunnels_;
  const std::unique_ptr<v1::BundleService::Stub> bundles_;
};

}  // namespace trainyard::link
