// Makes texts with the form of the tokens of pods. Nobody has signed them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace trainyard::kubernetes {

// Returns a token with these claims.
inline std::string TokenOf(const nlohmann::json& claims) {
  return absl::StrCat(absl::WebSafeBase64Escape(R"({"alg":"RS256"})"), ".",
                      absl::WebSafeBase64Escape(claims.dump()), ".c2lnbmVk");
}

// Returns a token of this audience that ends at `end`, and that differs from those with another
// `id`.
inline std::string PodToken(const std::string& audience, absl::Time end, const std::string& id) {
  return TokenOf(
      {{"aud", nlohmann::json::array({audience})}, {"exp", absl::ToUnixSeconds(end)}, {"sub", id}});
}

}  // namespace trainyard::kubernetes
