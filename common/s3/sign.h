// Signs requests as AWS wants it: Signature Version 4, with the signature in a header. Everything
// here is pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/s3/keys.h"

namespace trainyard::s3 {

using Query = std::vector<std::pair<std::string, std::string>>;

struct UnsignedRequest {
  std::string method;
  std::string path;  // as it is sent: PathOf has escaped it
  Query query;       // plain
  // By name in lower case, with `host`. All of them are signed.
  std::map<std::string, std::string> headers;
  // The hash of the body in 64 hex digits, which may stand in x-amz-content-sha256 too.
  std::string body_sha256;
};

// The region and the service for which a signature is valid.
struct SigningScope {
  std::string region;
  std::string service = "s3";
};

// Returns the value of the header Authorization. `time` must be that of the header x-amz-date.
std::string AuthorizationOf(const UnsignedRequest& request, const Credentials& credentials,
                            const SigningScope& scope, absl::Time time);

// Returns a time as x-amz-date has it: "20130524T000000Z".
std::string AmzDate(absl::Time time);
// Escapes all bytes but those that RFC 3986 calls unreserved.
std::string Escape(absl::string_view text);
// Returns the path of a key, whose slashes stay: "/a%20b/c".
std::string PathOf(absl::string_view key);
// Returns the query as it is sent and signed: sorted and escaped, without "?".
std::string QueryText(const Query& query);
// Returns the 64 lower-case hex digits of the SHA-256.
std::string HexSha256(absl::string_view bytes);

}  // namespace trainyard::s3
