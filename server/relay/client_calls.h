// Counts the calls that one client has under way in all its connections, because each of them takes
// memory and time of the server, which others need too.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace trainyard::relay {

// A call is under way until the server has answered it. If the client takes it back before, the
// server works on it for a while nevertheless, and does not say when it is done. So calls that were
// taken back count on, and are forgotten at a fixed rate. The class is not thread-safe. Times are
// uptimes.
class ClientCalls {
 public:
  // Calls that were taken back are forgotten this fast. The server can do ten times as many.
  static constexpr double kForgottenPerSecond = 1000;

  explicit ClientCalls(size_t max) : max_(max) {}

  // Counts a call that has begun. Returns false if the client has too many with it.
  bool Begin(absl::Duration now);
  // Forgets a call that was answered.
  void End() { --under_way_; }
  // Notes that calls were taken back before they were answered.
  void TakeBack(size_t calls, absl::Duration now);

  // Returns true if nothing is left to be counted.
  bool IsIdle(absl::Duration now) const { return under_way_ == 0 && now >= forgotten_; }

 private:
  const size_t max_;
  size_t under_way_ = 0;
  // The time at which all calls that were taken back are forgotten.
  absl::Duration forgotten_ = -absl::InfiniteDuration();
};

}  // namespace trainyard::relay
