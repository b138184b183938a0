// Gets keys for a token with which a platform vouches for a program, as Kubernetes does for the
// service account of a pod (IRSA of EKS).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/s3/credentials.h"

namespace trainyard::s3 {

// Returns true if AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN are set, and no key is.
bool HasWebIdentity(const Variables& variables);

// Takes the token to the service of AWS_ENDPOINT_URL_STS (else AWS's own in AWS_REGION or
// AWS_DEFAULT_REGION), which gives keys of the role for an hour. Region and endpoint of the bucket
// come from the variables too. A service that is not AWS's own is vouched for by the authorities in
// `authorities_file`, if that is not empty. Returns UNAUTHENTICATED (S3_NO_CREDENTIALS) if it
// refuses, and UNAVAILABLE if it cannot be reached.
absl::StatusOr<Found> AssumeRoleWithWebIdentity(const Variables& variables,
                                                const std::string& authorities_file);

// Gives keys that have not expired: it keeps those that it got, and gets others in time. It is
// thread-safe, and borrows the clock.
class WebIdentity {
 public:
  WebIdentity(Variables variables, std::string authorities_file, Clock& clock)
      : variables_(std::move(variables)),
        authorities_file_(std::move(authorities_file)),
        clock_(clock) {}

  // Returns what AssumeRoleWithWebIdentity returns, or what it has returned before.
  absl::StatusOr<Found> Get();

 private:
  const Variables variables_;
  const std::string authorities_file_;
  Clock& clock_;
  Mutex mutex_;
  std::optional<Found> found_ ABSL_GUARDED_BY(mutex_);
  absl::Duration end_ ABSL_GUARDED_BY(mutex_);  // the uptime at which they expire
};

}  // namespace trainyard::s3
