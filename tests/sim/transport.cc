// Draws the fate of each message when it is sent.
#include "tests/sim/transport.h"

#include <algorithm>

namespace trainyard::sim {

void Transport::Deliver(int link, bool to_server, std::function<void()> arrive) {
  Random& random = world_.random();
  const Time delay = random.Between(200, options_.delay_max);
  const bool lost = !calm_ && random.Chance(options_.loss);
  const bool twice = !calm_ && random.Chance(options_.duplicate);
  const auto is_cut = [this, link, to_server] {
    const Link& state = links_[link];
    return to_server ? state.cut_to_server || state.is_mute
                     : state.cut_from_server || state.is_deaf;
  };
  const auto lose = [this, link, to_server] {
    if (to_server) links_[link].last_loss = world_.now();
  };
  // A message is lost if either end of its way is cut.
  if (lost || is_cut()) {
    lose();
    return;
  }
  const auto land = [arrive = std::move(arrive), is_cut, lose] { is_cut() ? lose() : arrive(); };
  world_.After(delay, land);
  if (twice) world_.After(delay + random.Between(1, 20 * options_.delay_max), land);
}

void Transport::SetServerUp(bool is_up) {
  server_is_up_ = is_up;
  std::vector<std::weak_ptr<PendingCall>> calls;
  calls.swap(calls_);
  if (is_up) return;
  for (const auto& weak : calls) {
    const auto call = weak.lock();
    if (call == nullptr || call->ended_ || call->broken_ == nullptr) continue;
    world_.After(world_.random().Between(200, options_.delay_max),
                 [broken = call->broken_] { broken(); });
  }
}

}  // namespace trainyard::sim
