#include "worker/parallel/shm/peer_wait.h"

#include <poll.h>

#include <utility>

namespace trainyard::parallel {

PeerWait::PeerWait(const SharedSegment& segment, std::vector<UniqueFd> lives)
    : segment_(segment), lives_(std::move(lives)) {}

bool PeerWait::HasEnded(int peer) const {
  pollfd life{.fd = lives_[static_cast<size_t>(peer)].get(), .events = POLLIN, .revents = 0};
  return life.fd >= 0 && poll(&life, 1, 0) == 1;
}

}  // namespace trainyard::parallel
