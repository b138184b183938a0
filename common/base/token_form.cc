// Messages never repeat a token, or a part of it that is long enough to be of use: they end up in
// logs.
#include "common/base/token_form.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace trainyard {
namespace {

bool IsSecretCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
}

}  // namespace

std::string TokenText(absl::string_view prefix, absl::string_view secret) {
  TY_CHECK(secret.size() == kTokenSecretBytes);
  return absl::StrCat(prefix, absl::WebSafeBase64Escape(secret));
}

absl::Status CheckTokenForm(absl::string_view token, absl::string_view prefix) {
  if (token.empty()) return absl::InvalidArgumentError("there is no token");
  if (prefix == kUserTokenPrefix && absl::StartsWith(token, kJoinTokenPrefix)) {
    return absl::InvalidArgumentError(
        "this token lets a worker join; a user's token begins with tyk_");
  }
  if (!absl::StartsWith(token, prefix)) {
    return absl::InvalidArgumentError(absl::StrCat("the token does not begin with ", prefix));
  }
  if (token.size() != kTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the token has ", token.size(),
                                                   " characters instead of ", kTokenBytes,
                                                   "; was it copied whole?"));
  }
  if (!std::all_of(token.begin() + 4, token.end(), IsSecretCharacter)) {
    return absl::InvalidArgumentError(
        "the token has a character that is no letter, digit, '-' or '_'");
  }
  return absl::OkStatus();
}

bool IsPodTokenForm(absl::string_view token) {
  if (token.size() > kPodTokenBytesMax) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  return parts.size() == 3 && std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
           return !part.empty() && std::all_of(part.begin(), part.end(), IsSecretCharacter);
         });
}

}  // namespace trainyard
