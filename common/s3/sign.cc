// Follows "Signature Version 4 signing process" of AWS's General Reference. For S3, unlike other
// services, a path is escaped once and is not normalized.
#include "common/s3/sign.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/tls/digest.h"

namespace trainyard::s3 {
namespace {

constexpr char kAlgorithm[] = "AWS4-HMAC-SHA256";

bool IsUnreserved(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
         c == '~';
}

// Runs of spaces count as one, and none stand at the ends.
std::string CanonicalValue(absl::string_view value) {
  std::string text(value);
  absl::RemoveExtraAsciiWhitespace(&text);
  return text;
}

}  // namespace

std::string Escape(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (IsUnreserved(c)) {
      escaped += c;
    } else {
      absl::StrAppend(&escaped, "%",
                      absl::AsciiStrToUpper(absl::BytesToHexString(absl::string_view(&c, 1))));
    }
  }
  return escaped;
}

std::string PathOf(absl::string_view key) {
  std::string path;
  for (const absl::string_view part : absl::StrSplit(key, '/')) {
    absl::StrAppend(&path, "/", Escape(part));
  }
  return path;
}

std::string QueryText(const Query& query) {
  Query escaped;
  escaped.reserve(query.size());
  for (const auto& [name, value] : query) escaped.emplace_back(Escape(name), Escape(value));
  std::sort(escaped.begin(), escaped.end());
  return absl::StrJoin(escaped, "&", absl::PairFormatter("="));
}

std::string HexSha256(absl::string_view bytes) {
  return absl::BytesToHexString(tls::Sha256(bytes));
}

std::string AmzDate(absl::Time time) {
  return absl::FormatTime("%E4Y%m%dT%H%M%SZ", time, absl::UTCTimeZone());
}

std::string AuthorizationOf(const UnsignedRequest& request, const Credentials& credentials,
                            const SigningScope& scope, absl::Time time) {
  std::string lines;
  std::string names;
  for (const auto& [name, value] : request.headers) {
    absl::StrAppend(&lines, name, ":", CanonicalValue(value), "\n");
    absl::StrAppend(&names, names.empty() ? "" : ";", name);
  }
  const std::string canonical =
      absl::StrCat(request.method, "\n", request.path, "\n", QueryText(request.query), "\n", lines,
                   "\n", names, "\n", request.body_sha256);
  const std::string date = AmzDate(time);
  const std::string day = date.substr(0, 8);
  const std::string place =
      absl::StrCat(day, "/", scope.region, "/", scope.service, "/aws4_request");
  const std::string text =
      absl::StrCat(kAlgorithm, "\n", date, "\n", place, "\n", HexSha256(canonical));
  std::string key = absl::StrCat("AWS4", credentials.secret_access_key);
  for (const std::string& part :
       {day, scope.region, scope.service, std::string("aws4_request"), text}) {
    key = tls::HmacSha256(key, part);
  }
  return absl::StrCat(kAlgorithm, " Credential=", credentials.access_key_id, "/", place,
                      ", SignedHeaders=", names, ", Signature=", absl::BytesToHexString(key));
}

}  // namespace trainyard::s3
