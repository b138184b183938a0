// Looks at the text of a URL alone, and asks no resolver.
#include "common/curl/loopback.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace trainyard::curl {

bool IsLoopbackUrl(absl::string_view url) {
  if (!absl::ConsumePrefix(&url, "http://") && !absl::ConsumePrefix(&url, "https://")) return false;
  const absl::string_view authority = url.substr(0, url.find_first_of("/?#"));
  if (authority.find_first_of("@\\") != authority.npos) return false;
  const absl::string_view host = absl::StartsWith(authority, "[")
                                     ? authority.substr(0, authority.find(']') + 1)
                                     : authority.substr(0, authority.find(':'));
  return host == "localhost" || host == "[::1]" || host == "127.0.0.1";
}

}  // namespace trainyard::curl
