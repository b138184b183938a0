// One thread waits for everything with poll: for gRPC, for ssh, and for the end.
#include "client/link/ssh_tunnel.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::link {
namespace {

// gRPC makes one connection, and another one if that was lost.
constexpr int kBacklog = 8;

// Returns true if the other end is this process. Every process on the host can connect to a socket
// without a file, but only our own gRPC may speak for the user.
bool IsOurs(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == getpid();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SshTunnel>> SshTunnel::Open(const SshAddress& address,
                                                           Interrupt& interrupt, Clock& clock) {
  std::unique_ptr<SshTunnel> tunnel(new SshTunnel(address, clock));
  TY_RETURN_IF_ERROR(tunnel->Listen());
  tunnel->thread_ = std::thread([&tunnel = *tunnel] { tunnel.Run(); });
  const Interrupt::Scope scope(interrupt, [&tunnel = *tunnel] { tunnel.Stop(); });
  std::unique_lock lock(tunnel->mutex_);
  tunnel->changed_.wait(lock, [&tunnel = *tunnel] { return tunnel.status_.has_value(); });
  const absl::Status status = *tunnel->status_;
  lock.unlock();
  if (!status.ok()) return status;
  return tunnel;
}

SshTunnel::SshTunnel(const SshAddress& address, Clock& clock) : address_(address), clock_(clock) {}

SshTunnel::~SshTunnel() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

absl::Status SshTunnel::error() const {
  const std::lock_guard lock(mutex_);
  return status_.value_or(absl::OkStatus());
}

absl::Status SshTunnel::Listen() {
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // Without a name, the kernel finds one that is free. It begins with a zero byte, and nothing of
  // it is left when the process has ended.
  const bool is_bound = wake_.valid() && listener_.valid() &&
                        bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name),
                             sizeof(name.sun_family)) == 0 &&
                        listen(listener_.get(), kBacklog) == 0;
  socklen_t length = sizeof(name);
  if (!is_bound || getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    return ErrnoStatus(errno, "cannot make a socket for", address_.ToString());
  }
  const size_t name_begin = offsetof(sockaddr_un, sun_path) + 1;
  target_ =
      absl::StrCat("unix-abstract:", absl::string_view(name.sun_path + 1, length - name_begin));
  return absl::OkStatus();
}

void SshTunnel::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  eventfd_write(wake_.get(), 1);
}

bool SshTunnel::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void SshTunnel::Run() {
  Start(Prompts::kAllowed);
  while (!stopping()) Wait();
  Close(absl::CancelledError("interrupted"));
}

void SshTunnel::Start(Prompts prompts) {
  auto session = SshSession::Start(address_, prompts, clock_);
  if (!session.ok()) return Close(session.status());
  session_ = *std::move(session);
  is_open_ = false;
  has_messages_ = true;
}

// Waits for the next event, and deals with it.
void SshTunnel::Wait() {
  const bool is_opening = session_ != nullptr && !is_open_;
  const bool is_carrying = to_server_.has_value();
  const pollfd nothing = {-1, 0, 0};
  const auto readable = [&nothing](bool wanted, int fd) {
    return wanted ? pollfd{fd, POLLIN, 0} : nothing;
  };
  std::array<pollfd, 8> fds = {
      readable(true, wake_.get()),
      readable(true, listener_.get()),
      readable(session_ != nullptr && has_messages_, session_ == nullptr ? -1 : session_->err()),
      readable(is_opening, is_opening ? session_->out() : -1),
      is_carrying ? to_server_->ToRead() : nothing,
      is_carrying ? to_server_->ToWrite() : nothing,
      is_carrying ? to_client_->ToRead() : nothing,
      is_carrying ? to_client_->ToWrite() : nothing};
  // The millisecond that is added keeps the wait from ending just before the deadline.
  const int timeout =
      is_opening ? static_cast<int>(absl::ToInt64Milliseconds(session_->TimeLeft())) + 1 : -1;
  if (poll(fds.data(), fds.size(), timeout) < 0 || stopping()) return;
  if (fds[2].revents != 0) has_messages_ = session_->ReadMessages();
  if (is_opening) TryToOpen();
  if (is_carrying) Carry();
  if (fds[1].revents != 0) Accept();
}

void SshTunnel::TryToOpen() {
  const absl::StatusOr<bool> opened = session_->Open();
  if (!opened.ok()) return Close(opened.status());
  if (!*opened) return;
  is_open_ = true;
  Tell(absl::OkStatus());
  if (peer_.valid()) Attach();
}

void SshTunnel::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid() || !IsOurs(fd.get())) return;
  // gRPC has given up its last connection, and with it the stream of bytes to the server.
  if (to_server_.has_value()) Close(absl::UnavailableError("the connection was given up"));
  if (is_refused_) return;
  peer_ = std::move(fd);
  if (session_ == nullptr) Start(Prompts::kForbidden);
  if (is_open_) Attach();
}

void SshTunnel::Attach() {
  to_server_.emplace(peer_.get(), session_->in());
  to_client_.emplace(session_->out(), peer_.get(), session_->first_bytes());
}

void SshTunnel::Carry() {
  to_server_->Move();
  to_client_->Move();
  if (to_server_->is_open() && to_client_->is_open()) return;
  Close(to_server_->has_ended() ? absl::UnavailableError("the connection was given up")
                                : session_->Finish());
}

void SshTunnel::Close(const absl::Status& why) {
  // Whoever sees the connection end asks for the reason.
  Tell(why);
  is_refused_ = is_refused_ || absl::IsPermissionDenied(why);
  to_server_.reset();
  to_client_.reset();
  session_.reset();
  is_open_ = false;
  peer_ = UniqueFd();
}

void SshTunnel::Tell(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  changed_.notify_all();
}

}  // namespace trainyard::link
