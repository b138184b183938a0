// Opens a channel of gRPC on one end of a pair of sockets.
#pragma once

#include <memory>

#include "common/base/files.h"
#include "grpcpp/channel.h"

namespace trainyard::http {

// The services have the other end.
std::shared_ptr<grpc::Channel> ChannelOn(UniqueFd socket);

}  // namespace trainyard::http
