// Looks at tokens of pods, as strangers present them.
#include "common/base/check.h"
#include "common/base/errors.h"
#include "server/kubernetes/claims.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::pod_token {
namespace {

void Run(absl::string_view bytes) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  for (const access::PodUse use : {access::PodUse::kClient, access::PodUse::kWorker}) {
    const auto end = kubernetes::CheckClaims(bytes, use, now);
    if (end.ok()) {
      TY_CHECK(*end > now);
      continue;
    }
    TY_CHECK(absl::IsUnauthenticated(end.status()));
    // The message is sent back to a stranger, and goes into the log.
    TY_CHECK(end.status().message().size() <= 1024);
  }
}

const Registration kTarget({.name = "pod_token", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::pod_token
