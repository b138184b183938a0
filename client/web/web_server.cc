// One thread accepts connections, and the door serves them.
#include "client/web/web_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/web/socket_owner.h"
#include "common/base/errors.h"
#include "common/base/log.h"

namespace trainyard::web {
namespace {

// After an accept that failed for want of descriptors, the next one is tried so late.
constexpr int kRetryMs = 200;

http::DoorOptions OptionsOf(Gate& gate, std::shared_ptr<grpc::Channel> channel) {
  http::DoorOptions options;
  options.connect = [channel = std::move(channel)](const access::Peer&, const auto&) {
    return channel;
  };
  options.guard = [&gate](const access::Peer&, http::Request& request) {
    return gate.Check(request);
  };
  return options;
}

}  // namespace

WebServer::WebServer(link::LoopbackListener listener, std::shared_ptr<grpc::Channel> channel)
    : listener_(std::move(listener)),
      gate_(listener_.port),
      door_(OptionsOf(gate_, std::move(channel))) {}

absl::Status WebServer::Run(link::Interrupt& interrupt) {
  const UniqueFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const link::Interrupt::Scope scope(interrupt, [&wake] { eventfd_write(wake.get(), 1); });
  while (!interrupt.triggered()) {
    pollfd fds[2] = {{wake.get(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR)
      return ErrnoStatus(errno, "cannot wait for", "poll");
    if (fds[1].revents == 0) continue;
    UniqueFd socket(
        accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE) (void)poll(fds, 1, kRetryMs);
      continue;
    }
    // Other users of the machine can reach the port, but not even the page is for them.
    const std::optional<uid_t> owner = OwnerOfOtherEnd(socket.get());
    if (owner.has_value() && *owner != geteuid() && *owner != 0) {
      LogWarning("a connection of another user is closed", {{"uid", absl::StrCat(*owner)}});
      continue;
    }
    access::Peer peer;
    peer.user = "this user";
    door_.Take(std::move(socket), std::move(peer), nullptr);
  }
  return absl::OkStatus();
}

}  // namespace trainyard::web
