// Opens the channel. Errors of gRPC that mean "no server" become one that says so.
#include "client/link/server_link.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "grpc/support/time.h"

namespace trainyard::link {
namespace {

// The server reads this key of the metadata.
constexpr char kActAsKey[] = "trainyard-as";

}  // namespace

ServerLink::ServerLink(std::string address, std::shared_ptr<grpc::Channel> channel,
                       Interrupt& interrupt)
    : address_(std::move(address)),
      channel_(std::move(channel)),
      interrupt_(interrupt),
      jobs_(v1::JobService::NewStub(channel_)),
      checkpoints_(v1::CheckpointService::NewStub(channel_)),
      fleet_(v1::FleetService::NewStub(channel_)),
      sharing_(v1::SharingService::NewStub(channel_)),
      access_(v1::AccessService::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<ServerLink>> ServerLink::Connect(const std::string& address,
                                                                Interrupt& interrupt,
                                                                absl::Duration timeout,
                                                                const std::string& act_as) {
  std::vector<rpc::Metadata> metadata;
  if (!act_as.empty()) metadata.emplace_back(kActAsKey, act_as);
  TY_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                      rpc::MakeChannel(address, rpc::Keepalive::kNone, std::move(metadata)));
  TY_RETURN_IF_ERROR(rpc::WaitForServer(*channel, address, timeout));
  return std::unique_ptr<ServerLink>(new ServerLink(address, std::move(channel), interrupt));
}

void ServerLink::SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  // The deadline is a duration and no wall-clock time, so that a jump of the wall clock ends no
  // call.
  rpc::SetTimeout(context, timeout);
}

absl::Status ServerLink::Error(const grpc::Status& status) const {
  absl::Status error = rpc::FromGrpcStatus(status);
  if (error.code() == absl::StatusCode::kUnavailable && ErrorReason(error).empty()) {
    return error::ServerUnreachable(address_, error.message());
  }
  return error;
}

}  // namespace trainyard::link
