// Calls AWS's Security Token Service. The call is not signed: the token proves who calls.
#include "common/s3/web_identity.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/curl/caller.h"
#include "common/curl/loopback.h"
#include "common/s3/errors.h"
#include "common/s3/sign.h"
#include "common/s3/xml.h"

namespace trainyard::s3 {
namespace {

constexpr int64_t kTokenFileBytesMax = 64 << 10;
constexpr absl::Duration kTimeout = absl::Seconds(30);
// Keys are renewed so long before they expire, because a call may take some minutes.
constexpr absl::Duration kEarly = absl::Minutes(5);
// The service gives keys for an hour, also if it does not say so.
constexpr absl::Duration kLongest = absl::Hours(1);

std::string EitherOf(std::string first, std::string second) {
  return first.empty() ? std::move(second) : std::move(first);
}

}  // namespace

bool HasWebIdentity(const Variables& variables) {
  return variables("AWS_ACCESS_KEY_ID").empty() &&
         !variables("AWS_WEB_IDENTITY_TOKEN_FILE").empty() && !variables("AWS_ROLE_ARN").empty();
}

absl::StatusOr<Found> AssumeRoleWithWebIdentity(const Variables& variables,
                                                const std::string& authorities_file) {
  const std::string path = variables("AWS_WEB_IDENTITY_TOKEN_FILE");
  TY_ASSIGN_OR_RETURN(const std::string token, ReadFile(path, kTokenFileBytesMax));
  Found found;
  found.region = EitherOf(variables("AWS_REGION"), variables("AWS_DEFAULT_REGION"));
  found.endpoint = EitherOf(variables("AWS_ENDPOINT_URL_S3"), variables("AWS_ENDPOINT_URL"));
  found.source = absl::StrCat("the token in ", path);
  const std::string endpoint =
      EitherOf(variables("AWS_ENDPOINT_URL_STS"),
               absl::StrCat("https://sts.", EitherOf(found.region, "us-east-1"), ".amazonaws.com"));
  const std::string body =
      QueryText({{"Action", "AssumeRoleWithWebIdentity"},
                 {"Version", "2011-06-15"},
                 {"RoleArn", variables("AWS_ROLE_ARN")},
                 {"RoleSessionName", EitherOf(variables("AWS_ROLE_SESSION_NAME"), "trainyard")},
                 {"WebIdentityToken", std::string(absl::StripAsciiWhitespace(token))}});
  curl::Request request;
  request.method = "POST";
  request.url = absl::StrCat(absl::StripSuffix(endpoint, "/"), "/");
  request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  request.body = body;
  request.timeout = kTimeout;
  request.has_proxy = !curl::IsLoopbackUrl(endpoint);
  if (!variables("AWS_ENDPOINT_URL_STS").empty()) request.authorities_file = authorities_file;
  curl::Caller caller;
  const auto response = caller.Call(request);
  if (!response.ok()) {
    return absl::Status(response.status().code(),
                        absl::StrCat("cannot get keys from ", endpoint, " for ", found.source, ": ",
                                     response.status().message()));
  }
  const std::string refusal = absl::StrCat(endpoint, " gives none for ", found.source,
                                           " and the role '", variables("AWS_ROLE_ARN"), "': ");
  if (response->status != 200) {
    return error::S3NoCredentials(
        absl::StrCat(refusal, "HTTP ", response->status, " ", PlainText(response->body, 300)));
  }
  // The text of a success has keys, also if it cannot be parsed, so no message shows it.
  auto role = ParseAssumedRole(response->body);
  if (!role.ok()) return error::S3NoCredentials(absl::StrCat(refusal, role.status().message()));
  found.credentials = std::move(role->credentials);
  found.expire_time = role->expire_time;
  return found;
}

absl::StatusOr<Found> WebIdentity::Get() {
  const MutexLock lock(&mutex_);
  const absl::Duration now = clock_.Uptime();
  if (found_.has_value() && now < end_ - kEarly) return *found_;
  auto found = AssumeRoleWithWebIdentity(variables_, authorities_file_);
  if (found.ok()) {
    end_ = now + std::min(found->expire_time - clock_.Now(), kLongest);
    found_ = *found;
    return found;
  }
  // The service may be away for a while. The old keys are good until they expire.
  if (found_.has_value() && now < end_) return *found_;
  return found;
}

}  // namespace trainyard::s3
