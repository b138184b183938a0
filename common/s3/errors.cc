// Tells what a store's answer means, and what can be done about it.
#include "common/s3/errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/s3/xml.h"

namespace trainyard::error {

absl::Status S3NoCredentials(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnauthenticated, "S3_NO_CREDENTIALS",
                   absl::StrCat("no keys for the bucket were found: ", why));
}

}  // namespace trainyard::error

namespace trainyard::s3 {
namespace {

std::string NameOf(const Subject& subject) {
  return absl::StrCat("'s3://", subject.bucket, subject.key.empty() ? "" : "/", subject.key,
                      "' at ", subject.endpoint);
}

// Returns what is wrong with the keys, or "".
std::string MistakeOfKeys(absl::string_view code) {
  if (code == "SignatureDoesNotMatch") return "the secret key is not that of the key id";
  if (code == "InvalidAccessKeyId") return "the store does not know the key id";
  if (code == "ExpiredToken" || code == "TokenRefreshRequired") {
    return "the session token has expired; get a new one";
  }
  return code == "InvalidToken" ? "the session token is not that of the keys" : "";
}

struct Meaning {
  absl::StatusCode code;
  const char* reason;
  std::string advice;
};

Meaning MeaningOf(const Subject& subject, const curl::Response& answer,
                  const ErrorDocument& document) {
  const std::string& code = document.code;
  if (code == "RequestTimeTooSkewed" || code == "RequestExpired") {
    return {absl::StatusCode::kFailedPrecondition, error::kS3ClockSkew,
            absl::StrCat("the clock of this host is wrong: it signed at ", subject.date,
                         ", and the store answered at '", curl::HeaderOf(answer, "date"),
                         "'; set the clock (timedatectl set-ntp true)")};
  }
  std::string region = curl::HeaderOf(answer, "x-amz-bucket-region");
  if (region.empty()) region = document.region;
  // HEAD has no document: another region beside a refusal tells it.
  const bool is_elsewhere = !region.empty() && region != subject.region && answer.status >= 300;
  if (code == "AuthorizationHeaderMalformed" || code == "PermanentRedirect" ||
      code == "IllegalLocationConstraintException" || answer.status == 301 || is_elsewhere) {
    return {absl::StatusCode::kFailedPrecondition, error::kS3WrongRegion,
            region.empty()
                ? absl::StrCat("region '", subject.region,
                               "' or the endpoint is not that of the bucket; name the right one")
                : absl::StrCat("the bucket is in region '", region, "', not '", subject.region,
                               "'; name that one")};
  }
  if (code == "NoSuchBucket") {
    return {absl::StatusCode::kFailedPrecondition, error::kS3NoSuchBucket,
            "there is no such bucket; make it, or check its name and the endpoint"};
  }
  if (answer.status == 412 || code == "PreconditionFailed") {
    return {absl::StatusCode::kAborted, error::kS3ConditionFailed,
            "the object is not what was expected: somebody else has written it"};
  }
  // AWS tells of expired and malformed keys with 400, others with 401 or 403.
  const std::string keys = MistakeOfKeys(code);
  if (!keys.empty() || answer.status == 401 || answer.status == 403) {
    return {absl::StatusCode::kPermissionDenied, error::kS3AccessDenied,
            keys.empty() ? "the owner of the keys may not do this there" : keys};
  }
  switch (answer.status) {
    case 404:
      return {absl::StatusCode::kNotFound, "NOT_FOUND",
              code == "NoSuchUpload" ? "there is no such upload" : "there is no such object"};
    case 405:
    case 501:
      return {absl::StatusCode::kUnimplemented, error::kS3NotSupported,
              "the store does not know this request"};
    default:
      break;
  }
  if (MayPass(answer)) {
    return {absl::StatusCode::kUnavailable, error::kS3Unavailable,
            "the store has failed; try again later"};
  }
  return {absl::StatusCode::kInvalidArgument, error::kS3Refused, "the store refuses the request"};
}

}  // namespace

absl::Status StatusOfAnswer(const Subject& subject, const curl::Response& answer) {
  const ErrorDocument document = ParseError(answer.body);
  const Meaning meaning = MeaningOf(subject, answer, document);
  return MakeError(
      meaning.code, meaning.reason,
      absl::StrCat("cannot ", subject.verb, " ", NameOf(subject), ": ", meaning.advice, " (HTTP ",
                   answer.status, document.code.empty() ? "" : " ", document.code,
                   document.message.empty() ? "" : ": ", document.message, ")"));
}

absl::Status StatusOfCall(const Subject& subject, const absl::Status& cause) {
  return MakeError(
      cause.code(), error::kS3Unavailable,
      absl::StrCat("cannot ", subject.verb, " ", NameOf(subject), ": ", cause.message()));
}

bool MayPass(const curl::Response& answer) {
  switch (answer.status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      return true;
    case 409:
      // Two conditional writes met, and neither was judged yet.
      return absl::StrContains(answer.body, "ConditionalRequestConflict");
    case 400:
      // The store has waited too long for the body of this request.
      return absl::StrContains(answer.body, "<Code>RequestTimeout</Code>");
    default:
      return answer.status > 504;
  }
}

}  // namespace trainyard::s3
