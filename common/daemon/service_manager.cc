// Sends each message from a socket of its own, which is cheap at the rate of one in some seconds.
#include "common/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard {
namespace {

// A daemon ends this long after its last duty at most.
constexpr absl::Duration kStopMargin = absl::Seconds(10);

std::string Take(const char* name) {
  const char* value = getenv(name);
  std::string taken = value == nullptr ? "" : value;
  unsetenv(name);
  return taken;
}

}  // namespace

ServiceVariables TakeServiceVariables() {
  (void)Take("LISTEN_FDNAMES");
  return {Take("NOTIFY_SOCKET"), Take("WATCHDOG_USEC"), Take("WATCHDOG_PID"), Take("LISTEN_FDS"),
          Take("LISTEN_PID")};
}

ServiceManager::ServiceManager(const ServiceVariables& variables)
    : socket_(variables.notify_socket) {
  int64_t usec = 0;
  if (!absl::SimpleAtoi(variables.watchdog_usec, &usec) || usec <= 0) return;
  // The variables may be those of a process that started this one and that kept them.
  int64_t pid = 0;
  if (absl::SimpleAtoi(variables.watchdog_pid, &pid) && pid != getpid()) return;
  alive_interval_ = absl::Microseconds(usec) / 3;
}

void ServiceManager::Ready(absl::string_view status) const {
  Send(absl::StrCat("READY=1\nSTATUS=", status));
}

void ServiceManager::Stopping(absl::Duration time) const {
  std::string lines = "STOPPING=1\nSTATUS=stopping";
  if (time > absl::ZeroDuration()) {
    absl::StrAppend(&lines,
                    "\nEXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(time + kStopMargin));
  }
  Send(lines);
}

void ServiceManager::Alive() const {
  Send("WATCHDOG=1");
}

int ServiceManager::WaitForSignal(const sigset_t& signals,
                                  const std::function<bool()>& is_alive) const {
  while (true) {
    int number = 0;
    if (alive_interval_ == absl::InfiniteDuration()) {
      if (sigwait(&signals, &number) == 0) return number;
      continue;
    }
    const timespec limit = absl::ToTimespec(alive_interval_);
    number = sigtimedwait(&signals, nullptr, &limit);
    if (number > 0) return number;
    if (errno == EAGAIN && is_alive()) Alive();
  }
}

void ServiceManager::Send(absl::string_view lines) const {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  // A name that begins with '@' is one of the abstract kind, which has a zero byte there.
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  (void)sendto(fd.get(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace trainyard
