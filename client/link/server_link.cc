// Opens the channel. Errors of gRPC that mean "no server" become one that says so.
#include "client/link/server_link.h"

#include <utility>

#include "client/link/ssh_address.h"
#include "client/link/unix_socket.h"
#include "common/base/status_macros.h"
#include "common/rpc/address.h"
#include "common/rpc/channel.h"
#include "grpc/support/time.h"

namespace trainyard::link {
namespace {

// The server reads this key of the metadata.
constexpr char kActAsKey[] = "trainyard-as";

// This is longer than kOpenTimeout, so gRPC does not give up a connection before ssh does.
constexpr absl::Duration kCarriedConnectTimeout = absl::Seconds(30);

// Returns the error of a server that does not answer. gRPC does not say that a socket is not open
// to the user.
absl::Status Explain(const std::string& address, const absl::Status& status) {
  const auto parsed = rpc::ParseAddress(address);
  if (!parsed.ok() || parsed->kind != rpc::Address::Kind::kUnix) return status;
  const absl::Status direct = ConnectUnixSocket(address).status();
  return absl::IsPermissionDenied(direct) ? direct : status;
}

}  // namespace

ServerLink::ServerLink(std::string address, std::unique_ptr<SshTunnel> tunnel,
                       std::shared_ptr<grpc::Channel> channel, Interrupt& interrupt)
    : address_(std::move(address)),
      tunnel_(std::move(tunnel)),
      channel_(std::move(channel)),
      interrupt_(interrupt),
      jobs_(v1::JobService::NewStub(channel_)),
      checkpoints_(v1::CheckpointService::NewStub(channel_)),
      code_(v1::CodeService::NewStub(channel_)),
      fleet_(v1::FleetService::NewStub(channel_)),
      sharing_(v1::SharingService::NewStub(channel_)),
      access_(v1::AccessService::NewStub(channel_)),
      providers_(v1::ProviderService::NewStub(channel_)),
      secrets_(v1::SecretService::NewStub(channel_)),
      notify_(v1::NotifyService::NewStub(channel_)),
      specs_(v1::SpecService::NewStub(channel_)),
      sweeps_(v1::SweepService::NewStub(channel_)),
      tunnels_(v1::TunnelService::NewStub(channel_)),
      bundles_(v1::BundleService::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<ServerLink>> ServerLink::Connect(const std::string& address,
                                                                Interrupt& interrupt,
                                                                absl::Duration timeout,
                                                                const std::string& act_as,
                                                                const rpc::TlsOptions& tls) {
  std::vector<rpc::Metadata> metadata;
  if (!act_as.empty()) metadata.emplace_back(kActAsKey, act_as);
  std::unique_ptr<SshTunnel> tunnel;
  std::shared_ptr<grpc::Channel> channel;
  if (IsSshAddress(address)) {
    TY_ASSIGN_OR_RETURN(const SshAddress parsed, ParseSshAddress(address));
    TY_ASSIGN_OR_RETURN(tunnel, SshTunnel::Open(parsed, interrupt, *Clock::Real()));
    channel =
        rpc::MakeCarriedChannel(tunnel->target(), kCarriedConnectTimeout, std::move(metadata));
  } else {
    TY_ASSIGN_OR_RETURN(channel,
                        rpc::MakeChannel(address, rpc::Keepalive::kNone, std::move(metadata), tls));
  }
  const absl::Status status = rpc::WaitForServer(*channel, address, timeout);
  if (!status.ok() && tunnel != nullptr && !tunnel->error().ok()) return tunnel->error();
  if (!status.ok()) return Explain(address, status);
  return std::unique_ptr<ServerLink>(
      new ServerLink(address, std::move(tunnel), std::move(channel), interrupt));
}

absl::Status ServerLink::CheckAddress(const std::string& address) {
  return IsSshAddress(address) ? ParseSshAddress(address).status()
                               : rpc::ParseAddress(address).status();
}

void ServerLink::SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  // The deadline is a duration and no wall-clock time, so that a jump of the wall clock ends no
  // call.
  rpc::SetTimeout(context, timeout);
}

absl::Status ServerLink::Error(const grpc::Status& status) const {
  absl::Status error = rpc::FromGrpcStatus(status);
  if (error.code() == absl::StatusCode::kUnavailable && ErrorReason(error).empty()) {
    const absl::Status cause = tunnel_ == nullptr ? absl::OkStatus() : tunnel_->error();
    return cause.ok() ? error::ServerUnreachable(address_, error.message()) : cause;
  }
  return error;
}

}  // namespace trainyard::link
