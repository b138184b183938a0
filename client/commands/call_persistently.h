// Repeats a call that makes something, while the server is away for a moment.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "client/commands/context.h"
#include "common/base/backoff.h"
#include "common/base/errors.h"

namespace trainyard::commands {

// If the server restarts in the middle of a submission, it is back within this time.
inline constexpr absl::Duration kRetryFor = absl::Seconds(10);

// Returns true if the server itself is away. One that cannot reach a bucket has the same code, and
// has tried often enough.
inline bool IsServerAway(const absl::Status& status) {
  return absl::IsUnavailable(status) && !absl::StartsWith(ErrorReason(status), "S3_");
}

// Repeats the call until it succeeds, fails for good, or kRetryFor is over. The request has an id,
// so that the server makes nothing twice.
template <typename Request, typename Method>
auto CallPersistently(const Context& context, link::ServerLink& link, Method method,
                      const Request& request) {
  Backoff backoff(absl::Milliseconds(200), absl::Seconds(2), context.rng);
  const absl::Duration start = context.clock.Uptime();
  auto response = link.Call(method, request);
  while (IsServerAway(response.status()) && context.clock.Uptime() - start < kRetryFor &&
         !context.interrupt.WaitFor(backoff.Next())) {
    response = link.Call(method, request);
  }
  return response;
}

}  // namespace trainyard::commands
