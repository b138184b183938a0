// Draws the fate of each message when it is sent.
#include "tests/sim/transport.h"

#include <algorithm>

namespace trainyard::sim {

bool Transport::IsCut(int link, bool to_server) {
  const Link& state = links_[link];
  return to_server ? state.cut_to_server || state.is_mute : state.cut_from_server || state.is_deaf;
}

void Transport::Lose(int link, bool to_server) {
  if (to_server) links_[link].last_loss = world_.now();
}

void Transport::Deliver(int link, bool to_server, std::function<void()> arrive) {
  Random& random = world_.random();
  const Time delay = random.Between(200, options_.delay_max);
  const bool lost = !calm_ && random.Chance(options_.loss);
  const bool twice = !calm_ && random.Chance(options_.duplicate);
  // A message is lost if either end of its way is cut.
  if (lost || IsCut(link, to_server)) {
    Lose(link, to_server);
    return;
  }
  std::function<void()> land = [this, link, to_server, arrive = std::move(arrive)] {
    IsCut(link, to_server) ? Lose(link, to_server) : arrive();
  };
  const std::function<void()> again = twice ? land : nullptr;
  world_.After(delay, std::move(land));
  if (twice) world_.After(delay + random.Between(1, 20 * options_.delay_max), again);
}

void Transport::SetServerUp(bool is_up) {
  server_is_up_ = is_up;
  std::vector<std::weak_ptr<PendingCall>> calls;
  calls.swap(calls_);
  if (is_up) return;
  for (const auto& weak : calls) {
    const auto call = weak.lock();
    if (call == nullptr || call->ended_) continue;
    world_.After(world_.random().Between(200, options_.delay_max),
                 [call] { call->Fail(absl::UnavailableError("the connection is gone")); });
  }
}

}  // namespace trainyard::sim
