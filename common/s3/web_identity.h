// Gets keys for a token with which a platform vouches for a program, as Kubernetes does for the
// service account of a pod (IRSA of EKS).
#pragma once

#include "absl/status/statusor.h"
#include "common/s3/credentials.h"

namespace trainyard::s3 {

// Returns true if AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN are set, and no key is.
bool HasWebIdentity(const Variables& variables);

// Takes the token to the service of AWS_ENDPOINT_URL_STS (else AWS's own in AWS_REGION or
// AWS_DEFAULT_REGION), which gives keys of the role for an hour. Region and endpoint of the bucket
// come from the variables too. Returns UNAUTHENTICATED (S3_NO_CREDENTIALS) if it refuses, and
// UNAVAILABLE if it cannot be reached.
absl::StatusOr<Found> AssumeRoleWithWebIdentity(const Variables& variables);

}  // namespace trainyard::s3
