// Such a channel never reconnects: once its socket is closed, its calls fail.
#include "server/http/channel.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/rpc/channel.h"

namespace trainyard::http {

std::shared_ptr<grpc::Channel> ChannelOn(UniqueFd socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(rpc::kMessageSizeMax);
  arguments.SetMaxSendMessageSize(rpc::kMessageSizeMax);
  // gRPC would guess that the way is long, and take megabytes of a stream before anybody reads
  // them.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomInsecureChannelFromFd("services", socket.release(), arguments);
}

}  // namespace trainyard::http
