// Opens channels to the server over a Unix socket, loopback, or TLS.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace trainyard::rpc {

// No message of the API is larger than this.
inline constexpr int kMessageSizeMax = 4 * 1024 * 1024;

// Says whether a channel asks the other end for signs of life while calls are under way. Without
// them, a line that was cut and says nothing is used until TCP gives it up, which may take minutes.
enum class Keepalive { kNone, kPings };

// A key and a value that go with each call of a channel.
using Metadata = std::pair<std::string, std::string>;

// Says how the two ends of a channel prove who they are, for addresses of TLS.
struct TlsOptions {
  // The certificate that was pinned (PEM): only servers whose own it has signed are accepted.
  std::string authority = {};
  // The name that the server's certificate must have. Empty means the host's in the address.
  std::string server_name = {};
  // The token that goes with each call, or empty.
  std::string token = {};
  // A file with the token in place of that. It is read for each call, because somebody renews it.
  std::string token_file = {};
  // A folder with authority.pem, worker.pem and worker.key, in place of all of these. The files are
  // read again when they change.
  std::string worker_folder = {};
};

// Returns a channel that connects by itself and reconnects within a second or two of the server's
// return. It is lazy: if there is no server, the first call fails. Returns INVALID_ARGUMENT for an
// address that ParseAddress refuses, and UNAUTHENTICATED (NOT_SIGNED_IN) for one of TLS without a
// pinned certificate.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(absl::string_view address,
                                                           Keepalive keepalive = Keepalive::kNone,
                                                           std::vector<Metadata> metadata = {},
                                                           const TlsOptions& tls = {});

// Returns a channel to a socket of this process, as gRPC names it ("unix-abstract:x"), behind which
// the process carries every connection to a server elsewhere. An attempt to connect may take as
// long as that needs.
std::shared_ptr<grpc::Channel> MakeCarriedChannel(const std::string& target,
                                                  absl::Duration connect_timeout,
                                                  std::vector<Metadata> metadata = {});

// Waits until the channel is connected. Returns SERVER_UNREACHABLE with the address and the cause
// if it is not connected after `timeout`. A refused port, and a Unix socket on which nobody
// listens, are reported at once, without waiting.
absl::Status WaitForServer(grpc::Channel& channel, absl::string_view address,
                           absl::Duration timeout);

// Lets channels connect again while no call waits for them, which takes several answers of the
// other side with TLS. Otherwise gRPC looks for these every 5 seconds, and gives up after 10. A
// program calls this once, before it opens a channel or reads its environment in another thread.
// It starts threads of gRPC, with the signal mask of the caller.
void KeepConnecting();

// Ends calls of `context` after `timeout` with DEADLINE_EXCEEDED.
void SetTimeout(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace trainyard::rpc
