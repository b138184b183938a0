// Serves the page and the API to browsers of this machine, over the client's own connection.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/interrupt.h"
#include "client/link/loopback.h"
#include "client/web/gate.h"
#include "grpcpp/channel.h"
#include "server/http/door.h"

namespace trainyard::web {

// The door of the server, at the client's end: calls are made on the channel that the client has
// anyway, so they are those of the user however far the server is.
class WebServer {
 public:
  WebServer(link::LoopbackListener listener, std::shared_ptr<grpc::Channel> channel);

  // Returns the link that signs a browser in and shows the page at `path`.
  std::string LinkTo(absl::string_view path) const { return gate_.LinkTo(path); }
  // Serves until the interrupt comes.
  absl::Status Run(link::Interrupt& interrupt);

 private:
  const link::LoopbackListener listener_;
  Gate gate_;  // the thread of the door uses it
  http::Door door_;
};

}  // namespace trainyard::web
