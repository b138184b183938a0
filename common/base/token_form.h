// Defines the text of tokens, which stand for a user or let a worker join. Server and client check
// the form alike, so that a token that was not copied whole is found before it is sent.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// A token is its kind and 256 random bits in base64url: "tyk_" and 43 characters.
inline constexpr absl::string_view kUserTokenPrefix = "tyk_";
inline constexpr absl::string_view kJoinTokenPrefix = "tyj_";
inline constexpr size_t kTokenSecretBytes = 32;
inline constexpr size_t kTokenBytes = 4 + 43;

// Returns the text of a token with this secret.
std::string TokenText(absl::string_view prefix, absl::string_view secret);

// Returns INVALID_ARGUMENT, without the token itself, if `token` cannot be one of this kind.
absl::Status CheckTokenForm(absl::string_view token, absl::string_view prefix);

// gRPC takes 8 KiB of headers, and Kubernetes makes tokens of about 1 KiB.
inline constexpr size_t kPodTokenBytesMax = 7 * 1024;

// Returns true for what may be the token of a pod, which Kubernetes makes: a JSON Web Token (RFC
// 7519), of three parts in base64url. It says nothing about who has made it.
bool IsPodTokenForm(absl::string_view token);

}  // namespace trainyard
