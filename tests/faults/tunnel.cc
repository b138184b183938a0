// One thread that lives in the near end's network and polls all connections. Sockets stay in the
// network in which they were made, so the far end's listener is made by a thread of its own.
#include "tests/faults/tunnel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::testing {
namespace {

constexpr size_t kWaitingBytesMax = size_t{64} << 10;
constexpr int kBacklog = 64;

UniqueFd MakeSocket(int family) {
  return UniqueFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

sockaddr_un UnixName(const std::string& path) {
  sockaddr_un name{};
  TY_CHECK(path.size() < sizeof(name.sun_path));
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  return name;
}

sockaddr_in TcpName(const std::string& address, int port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  TY_CHECK(inet_pton(AF_INET, address.c_str(), &name.sin_addr) == 1);
  return name;
}

template <typename Name>
absl::Status Listen(const UniqueFd& fd, const Name& name) {
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, "cannot listen for", "a tunnel");
  }
  return absl::OkStatus();
}

template <typename Name>
bool Connect(const UniqueFd& fd, const Name& name) {
  return fd.valid() &&
         (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
          errno == EINPROGRESS);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tunnel>> Tunnel::Start(const Networks& networks, int near,
                                                      std::string near_path, int far,
                                                      std::string server_path) {
  std::unique_ptr<Tunnel> tunnel(new Tunnel());
  tunnel->server_path_ = std::move(server_path);
  tunnel->far_address_ = Networks::Address(far);
  absl::Status status;
  std::thread([&] {
    if (setns(networks.Namespace(far), CLONE_NEWNET) != 0) {
      status = ErrnoStatus(errno, "cannot enter", "the far network");
      return;
    }
    tunnel->far_listener_ = MakeSocket(AF_INET);
    status = Listen(tunnel->far_listener_, TcpName(tunnel->far_address_, 0));
    sockaddr_in name{};
    socklen_t length = sizeof(name);
    getsockname(tunnel->far_listener_.get(), reinterpret_cast<sockaddr*>(&name), &length);
    tunnel->far_port_ = ntohs(name.sin_port);
  }).join();
  if (!status.ok()) return status;
  tunnel->near_listener_ = MakeSocket(AF_UNIX);
  status = Listen(tunnel->near_listener_, UnixName(near_path));
  if (!status.ok()) return status;
  tunnel->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  tunnel->thread_ = std::thread([raw = tunnel.get(), space = networks.Namespace(near)] {
    TY_CHECK(setns(space, CLONE_NEWNET) == 0);
    raw->Loop();
  });
  return tunnel;
}

Tunnel::~Tunnel() {
  if (!thread_.joinable()) return;
  TY_CHECK(eventfd_write(stop_.get(), 1) == 0);
  thread_.join();
}

// A connection at the near end goes on over TCP, and one at the far end to the server.
void Tunnel::Accept(const UniqueFd& listener, bool is_near) {
  UniqueFd taken(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!taken.valid()) return;
  UniqueFd onward = MakeSocket(is_near ? AF_INET : AF_UNIX);
  const bool is_connected = is_near ? Connect(onward, TcpName(far_address_, far_port_))
                                    : Connect(onward, UnixName(server_path_));
  if (!is_connected) return;  // the server is not there, and the connection ends
  auto connection = std::make_unique<Connection>();
  connection->halves[0] = {taken.get(), onward.get(), ""};
  connection->halves[1] = {onward.get(), taken.get(), ""};
  connection->ends[0] = std::move(taken);
  connection->ends[1] = std::move(onward);
  connections_.push_back(std::move(connection));
}

void Tunnel::Carry(Half& half, short from_events, short to_events, bool& is_broken) {
  if (half.waiting.empty() && (from_events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    half.waiting.resize(kWaitingBytesMax);
    const ssize_t count = recv(half.from, half.waiting.data(), half.waiting.size(), 0);
    const bool is_nothing = count < 0 && (errno == EAGAIN || errno == EINTR);
    is_broken |= count <= 0 && !is_nothing;
    half.waiting.resize(count > 0 ? static_cast<size_t>(count) : 0);
  } else if (!half.waiting.empty() && (to_events & (POLLOUT | POLLERR)) != 0) {
    const ssize_t count = send(half.to, half.waiting.data(), half.waiting.size(), MSG_NOSIGNAL);
    is_broken |= count < 0 && errno != EAGAIN && errno != EINTR;
    if (count > 0) half.waiting.erase(0, static_cast<size_t>(count));
  }
}

void Tunnel::Loop() {
  for (;;) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0},
                                  {near_listener_.get(), POLLIN, 0},
                                  {far_listener_.get(), POLLIN, 0}};
    const size_t first = polled.size();
    for (const auto& connection : connections_) {
      for (const int end : {0, 1}) {
        const bool has_room = connection->halves[end].waiting.empty();
        const bool has_data = !connection->halves[1 - end].waiting.empty();
        polled.push_back({connection->ends[end].get(),
                          static_cast<short>((has_room ? POLLIN : 0) | (has_data ? POLLOUT : 0)),
                          0});
      }
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    for (size_t i = 0; i < connections_.size(); ++i) {
      const short events[] = {polled[first + 2 * i].revents, polled[first + 2 * i + 1].revents};
      Connection& connection = *connections_[i];
      for (const int end : {0, 1}) {
        Carry(connection.halves[end], events[end], events[1 - end], connection.is_broken);
      }
    }
    std::erase_if(connections_, [](const auto& connection) { return connection->is_broken; });
    if (polled[1].revents != 0) Accept(near_listener_, /*is_near=*/true);
    if (polled[2].revents != 0) Accept(far_listener_, /*is_near=*/false);
  }
}

}  // namespace trainyard::testing
