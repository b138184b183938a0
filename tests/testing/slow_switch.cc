// Takes whole frames from its ports and passes them on after the delay.
#include "tests/testing/slow_switch.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "common/base/env.h"
#include "common/base/status_macros.h"

namespace trainyard::testing {
namespace {

// Frames between namespaces are as long as what TCP has to send, up to 64 KiB, and their checksums
// are not filled in; the header before each frame says so.
constexpr size_t kFrameMax = (64 << 10) + 256;
constexpr int kBuffer = 32 << 20;

absl::StatusOr<UniqueFd> OpenPort(const std::string& name) {
  UniqueFd port(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  const int on = 1;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
  if (!port.valid() || setsockopt(port.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
      setsockopt(port.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
      setsockopt(port.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kBuffer, sizeof kBuffer) != 0 ||
      setsockopt(port.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kBuffer, sizeof kBuffer) != 0 ||
      bind(port.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return absl::UnavailableError(ErrnoStatus(errno, "cannot open", name).message());
  }
  return port;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlowSwitch>> SlowSwitch::Start(int network_namespace,
                                                              const std::vector<std::string>& ports,
                                                              absl::Duration delay) {
  std::unique_ptr<SlowSwitch> result(new SlowSwitch(delay));
  result->stop_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  absl::Status status;
  const auto open_all = [&]() -> absl::Status {
    if (setns(network_namespace, CLONE_NEWNET) != 0) {
      return absl::UnavailableError(ErrnoStatus(errno, "cannot enter", "a namespace").message());
    }
    for (const std::string& port : ports) {
      TY_ASSIGN_OR_RETURN(UniqueFd opened, OpenPort(port));
      result->sockets_.push_back(std::move(opened));
    }
    return absl::OkStatus();
  };
  // The switch has a thread of its own, since a network namespace belongs to a thread.
  std::thread([&] { status = open_all(); }).join();
  TY_RETURN_IF_ERROR(status);
  result->thread_ = std::thread([owner = result.get()] { owner->Loop(); });
  return result;
}

SlowSwitch::~SlowSwitch() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void SlowSwitch::Loop() {
  std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}};
  for (const UniqueFd& port : sockets_) waits.push_back({port.get(), POLLIN, 0});
  while (true) {
    timespec timeout{};
    if (!frames_.empty()) {
      const absl::Duration left = frames_.front().due - Clock::Real()->Uptime();
      timeout = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
    }
    (void)ppoll(waits.data(), waits.size(), frames_.empty() ? nullptr : &timeout, nullptr);
    if ((waits[0].revents & POLLIN) != 0) return;
    for (size_t port = 0; port < sockets_.size(); ++port) Receive(port);
    SendDue();
  }
}

void SlowSwitch::Receive(size_t port) {
  std::vector<char> bytes(kFrameMax);
  while (true) {
    const ssize_t size = recv(sockets_[port].get(), bytes.data(), bytes.size(), 0);
    if (size <= 0) return;  // all are read, or the port is down
    frames_.push_back(
        {Clock::Real()->Uptime() + delay_, port, {bytes.begin(), bytes.begin() + size}});
  }
}

void SlowSwitch::SendDue() {
  for (; !frames_.empty() && frames_.front().due <= Clock::Real()->Uptime(); frames_.pop_front()) {
    const Frame& frame = frames_.front();
    for (size_t port = 0; port < sockets_.size(); ++port) {
      if (port == frame.from) continue;
      // A frame that a full port does not accept is lost, as on any switch.
      (void)send(sockets_[port].get(), frame.bytes.data(), frame.bytes.size(), 0);
    }
  }
}

}  // namespace trainyard::testing
