// Finds the keys with which requests are signed, where the tools of AWS look for them too.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/s3/keys.h"

namespace trainyard::s3 {

// The keys, and the rest that the environment and the files say. Empty texts are unknown.
struct Found {
  Credentials credentials;
  std::string region;
  std::string endpoint;
  // For messages: "the environment", or "profile 'lab' of /home/x/.aws/credentials".
  std::string source;
  absl::Time expire_time = absl::InfiniteFuture();
};

// Returns the value of a variable of the environment, or "". Only mains may ask the environment.
using Variables = std::function<std::string(const char* name)>;

// Takes AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN if they are set. Else reads
// the profile AWS_PROFILE (else `default`) of AWS_SHARED_CREDENTIALS_FILE (else
// ~/.aws/credentials). Region and endpoint come from AWS_REGION, AWS_DEFAULT_REGION,
// AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL, else from the same profile of AWS_CONFIG_FILE (else
// ~/.aws/config). Returns UNAUTHENTICATED (S3_NO_CREDENTIALS) with all places that were looked at.
absl::StatusOr<Found> FindCredentials(const Variables& variables);

}  // namespace trainyard::s3
