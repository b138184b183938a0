// Looks at the token of a pod before anybody is asked about it. What it says is not proved: a token
// that passes is worth asking about, and nothing else.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/access/pod.h"

namespace trainyard::kubernetes {

// Returns "trainyard" for clients, and "trainyard-worker".
absl::string_view AudienceOf(access::PodUse use);

// Returns when the token ends. Returns UNAUTHENTICATED: TOKEN_UNKNOWN for what is no token of a
// pod, TOKEN_EXPIRED, and TOKEN_FOR_OTHERS if it has another audience.
absl::StatusOr<absl::Time> CheckClaims(absl::string_view token, access::PodUse use, absl::Time now);

}  // namespace trainyard::kubernetes
