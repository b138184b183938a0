// Makes secrets and the digests by which they are recognised. Unlike common/base/hash.h and the
// Rng, these resist an attacker.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::tls {

// Returns the 32 bytes of the SHA-256 of `text`.
std::string Sha256(absl::string_view text);

// Returns the 32 bytes of the HMAC-SHA256 of `text` under `key` (RFC 2104).
std::string HmacSha256(absl::string_view key, absl::string_view text);

// Computes SHA-256 over content that comes in pieces. The class is not thread-safe.
class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  Sha256Hasher(const Sha256Hasher&) = delete;
  Sha256Hasher& operator=(const Sha256Hasher&) = delete;

  void Update(absl::string_view bytes);
  // Returns "sha256:<64 hex digits>" of all that has come. It is called once.
  std::string Text();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the digest of all of `bytes` in the same form.
std::string Sha256Text(absl::string_view bytes);
// Returns the 64 lower-case hex digits of a text of that form, which are safe as a file name, or
// INVALID_ARGUMENT.
absl::StatusOr<std::string> Sha256Digits(absl::string_view text);

// Returns this many bytes that nobody can guess.
std::string SecretBytes(size_t count);

}  // namespace trainyard::tls
