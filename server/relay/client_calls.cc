// Keeps the calls that were taken back as the time that it takes to forget them.
#include "server/relay/client_calls.h"

#include <algorithm>

namespace trainyard::relay {

bool ClientCalls::Begin(absl::Duration now) {
  ++under_way_;
  const absl::Duration left = std::max(forgotten_ - now, absl::ZeroDuration());
  const double taken_back = absl::ToDoubleSeconds(left) * kForgottenPerSecond;
  return static_cast<double>(under_way_) + taken_back <= static_cast<double>(max_);
}

void ClientCalls::TakeBack(size_t calls, absl::Duration now) {
  under_way_ -= calls;
  forgotten_ =
      std::max(forgotten_, now) + absl::Seconds(static_cast<double>(calls) / kForgottenPerSecond);
}

}  // namespace trainyard::relay
