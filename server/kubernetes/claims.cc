// Reads the middle part of a JSON Web Token (RFC 7519).
#include "server/kubernetes/claims.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/sign_in_errors.h"
#include "common/base/token_form.h"

namespace trainyard::kubernetes {
namespace {

using nlohmann::json;

bool HasAudience(const json& claims, absl::string_view audience) {
  const auto found = claims.find("aud");
  if (found == claims.end()) return false;
  const auto is_it = [audience](const json& each) {
    return each.is_string() && each.get_ref<const std::string&>() == audience;
  };
  return found->is_array() ? std::any_of(found->begin(), found->end(), is_it) : is_it(*found);
}

}  // namespace

absl::string_view AudienceOf(access::PodUse use) {
  return use == access::PodUse::kClient ? "trainyard" : "trainyard-worker";
}

absl::StatusOr<absl::Time> CheckClaims(absl::string_view token, access::PodUse use,
                                       absl::Time now) {
  if (!IsPodTokenForm(token)) return error::TokenUnknown();
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  std::string text;
  if (!absl::WebSafeBase64Unescape(parts[1], &text)) return error::TokenUnknown();
  const json claims = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!claims.is_object()) return error::TokenUnknown();
  const absl::string_view audience = AudienceOf(use);
  if (!HasAudience(claims, audience)) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_FOR_OTHERS",
                     absl::StrCat("the token of the pod has another audience than '", audience,
                                  "'; project one with that audience into the pod"));
  }
  const auto end = claims.find("exp");
  // A token of a pod always ends. Those of Secrets, which do not, are no such tokens.
  if (end == claims.end() || !end->is_number()) return error::TokenUnknown();
  const double seconds = end->get<double>();
  if (!(seconds > 0 && seconds < 1e11)) return error::TokenUnknown();
  const absl::Time expires = absl::UnixEpoch() + absl::Seconds(seconds);
  if (now < expires) return expires;
  return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_EXPIRED",
                   absl::StrCat("the token of the pod has expired at ",
                                absl::FormatTime(absl::RFC3339_sec, expires, absl::UTCTimeZone()),
                                "; read the file again, which Kubernetes renews"));
}

}  // namespace trainyard::kubernetes
