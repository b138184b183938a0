// Waits for connections with poll(2), together with the end of the acceptor.
#include "server/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/log.h"

namespace trainyard {
namespace {

// Connections that are accepted on one socket before the next one has its turn.
constexpr int kBatch = 64;
// The pause after which descriptors may be free again.
constexpr int kPauseMs = 100;
constexpr absl::Duration kWarningInterval = absl::Minutes(1);

int DescriptorLimit() {
  rlimit limit{};
  TY_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

// Returns the first descriptor that no connection may have. Descriptors are given out from the
// lowest number that is free, so at least as many are open when it is reached.
int FirstDescriptorKept() {
  const int limit = DescriptorLimit();
  return limit - std::min(Acceptor::kDescriptorsKept, limit / 4);
}

}  // namespace

void RaiseDescriptorLimit() {
  rlimit limit{};
  TY_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    LogWarning("cannot raise the limit of open files",
               {{"limit", absl::StrCat(DescriptorLimit())}});
  }
}

Acceptor::Acceptor(std::vector<UniqueFd> sockets, Take take)
    : sockets_(std::move(sockets)), take_(std::move(take)), stop_(eventfd(0, EFD_CLOEXEC)) {
  TY_CHECK(stop_.valid());
  thread_ = std::thread([this] { Run(); });
}

Acceptor::~Acceptor() {
  const uint64_t one = 1;
  TY_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

void Acceptor::Run() {
  std::vector<pollfd> waited = {{stop_.get(), POLLIN, 0}};
  for (const UniqueFd& socket : sockets_) waited.push_back({socket.get(), POLLIN, 0});
  bool has_descriptors = true;
  while (true) {
    // The sockets stay readable while connections wait, so they are not waited for in a pause.
    const nfds_t count = has_descriptors ? waited.size() : 1;
    const int ready = poll(waited.data(), count, has_descriptors ? -1 : kPauseMs);
    TY_CHECK(ready >= 0 || errno == EINTR || errno == ENOMEM);
    if (ready > 0 && waited[0].revents != 0) return;
    has_descriptors = true;
    for (const UniqueFd& socket : sockets_) {
      if (!AcceptSome(socket.get())) has_descriptors = false;
    }
  }
}

bool Acceptor::AcceptSome(int listener) {
  for (int i = 0; i < kBatch; ++i) {
    UniqueFd connection(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        Refused();
        return false;
      }
      continue;  // the connection has ended before it was accepted
    }
    // The limit is asked for each time, because an administrator may change it (prlimit).
    if (connection.get() >= FirstDescriptorKept()) {
      Refused();
      continue;
    }
    const int on = 1;
    // This fails for Unix sockets, which have no such delay.
    setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    take_(listener, std::move(connection));
  }
  return true;
}

void Acceptor::Refused() {
  ++refused_;
  const absl::Duration now = Clock::Real()->Uptime();
  if (now - warned_ < kWarningInterval) return;
  LogWarning(
      "too many connections: new ones are closed until others end",
      {{"refused", absl::StrCat(refused_)}, {"open_files_max", absl::StrCat(DescriptorLimit())}});
  warned_ = now;
  refused_ = 0;
}

}  // namespace trainyard
