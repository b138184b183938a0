// Names the errors of buckets, in addition to common/base/errors.h. An object that is not there is
// NOT_FOUND.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/curl/caller.h"

namespace trainyard::error {

// S3_NO_CREDENTIALS: set the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a
// credentials file as `aws configure` does.
absl::Status S3NoCredentials(absl::string_view why);
// S3_ACCESS_DENIED: the keys are wrong, or their owner may not do this in the bucket; the message
// has the answer of the store.
inline constexpr char kS3AccessDenied[] = "S3_ACCESS_DENIED";
// S3_CLOCK_SKEW: the clock of this host is wrong; set it (`timedatectl set-ntp true`).
inline constexpr char kS3ClockSkew[] = "S3_CLOCK_SKEW";
// S3_WRONG_REGION: the bucket is in another region than the one that was named.
inline constexpr char kS3WrongRegion[] = "S3_WRONG_REGION";
// S3_NO_SUCH_BUCKET: make the bucket, or check its name and the endpoint.
inline constexpr char kS3NoSuchBucket[] = "S3_NO_SUCH_BUCKET";
// S3_CONDITION_FAILED: the object is there already, or somebody else has replaced it meanwhile.
inline constexpr char kS3ConditionFailed[] = "S3_CONDITION_FAILED";
// S3_NOT_SUPPORTED: the store does not know what was asked of it, such as conditional writes.
inline constexpr char kS3NotSupported[] = "S3_NOT_SUPPORTED";
// S3_REFUSED: the store refuses the request as invalid; the message has its answer.
inline constexpr char kS3Refused[] = "S3_REFUSED";
// S3_UNAVAILABLE: the store could not be reached or has failed, also after all retries. Try later.
inline constexpr char kS3Unavailable[] = "S3_UNAVAILABLE";

}  // namespace trainyard::error

namespace trainyard::s3 {

// The subject of a request, for messages.
struct Subject {
  std::string verb;  // "write", "read"
  std::string bucket;
  std::string key;  // empty if the request was about the bucket
  std::string endpoint;
  std::string region;
  std::string date;  // x-amz-date of the request
};

// Makes a status of an answer that is no success.
absl::Status StatusOfAnswer(const Subject& subject, const curl::Response& answer);
// Makes a status of a call that got no answer. The code of `cause` stays.
absl::Status StatusOfCall(const Subject& subject, const absl::Status& cause);
// Returns true if the same request may succeed later.
bool MayPass(const curl::Response& answer);

}  // namespace trainyard::s3
