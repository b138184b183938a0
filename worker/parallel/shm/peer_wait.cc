// Asks the kernel if a process still lives, and gives names to the ends of a wait.
#include "worker/parallel/shm/peer_wait.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::parallel {

absl::Status StatusOf(PeerWaitEnd end, const Collective& collective, int peer,
                      absl::Duration timeout) {
  switch (end) {
    case PeerWaitEnd::kDone:
      return absl::OkStatus();
    case PeerWaitEnd::kPeerLeft:
      return PeerLost(collective, peer, "it left the gang");
    case PeerWaitEnd::kPeerEnded:
      return PeerLost(collective, peer, "its process has ended");
    case PeerWaitEnd::kTimedOut:
      return CollectiveTimedOut(collective, peer, timeout);
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> OpenLife(int pid) {
  if (pid == getpid()) return UniqueFd();
  UniqueFd life(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!life.valid() && errno == ESRCH) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  return life;
}

PeerWait::PeerWait(std::vector<const std::atomic<uint32_t>*> left, std::vector<UniqueFd> lives,
                   absl::Duration yield_time)
    : left_(std::move(left)), lives_(std::move(lives)), yield_time_(yield_time) {}

bool PeerWait::HasEnded(int peer) const {
  pollfd life{.fd = lives_[static_cast<size_t>(peer)].get(), .events = POLLIN, .revents = 0};
  return life.fd >= 0 && poll(&life, 1, 0) == 1;
}

}  // namespace trainyard::parallel
