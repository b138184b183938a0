// Takes digests and secrets from OpenSSL.
#include "common/tls/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace trainyard::tls {
namespace {

constexpr absl::string_view kSha256Prefix = "sha256:";

}  // namespace

std::string Sha256(absl::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string HmacSha256(absl::string_view key, absl::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  unsigned int size = 0;
  TY_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                reinterpret_cast<unsigned char*>(digest.data()), &size) != nullptr);
  return digest;
}

struct Sha256Hasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

// These calls fail only without memory.
Sha256Hasher::Sha256Hasher() : state_(std::make_unique<State>()) {
  TY_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256Hasher::~Sha256Hasher() = default;

void Sha256Hasher::Update(absl::string_view bytes) {
  TY_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256Hasher::Text() {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  TY_CHECK(EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()),
                              nullptr) == 1);
  return absl::StrCat(kSha256Prefix, absl::BytesToHexString(digest));
}

std::string Sha256Text(absl::string_view bytes) {
  return absl::StrCat(kSha256Prefix, absl::BytesToHexString(Sha256(bytes)));
}

absl::StatusOr<std::string> Sha256Digits(absl::string_view text) {
  absl::string_view digits = text;
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (absl::ConsumePrefix(&digits, kSha256Prefix) && digits.size() == 2 * SHA256_DIGEST_LENGTH &&
      std::all_of(digits.begin(), digits.end(), is_hex)) {
    return std::string(digits);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text.substr(0, 100), "' is no digest; expected sha256: and 64 lower-case hex digits"));
}

std::string SecretBytes(size_t count) {
  std::string bytes(count, '\0');
  // Without a source of randomness there is no safe way to continue.
  TY_CHECK(RAND_priv_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                           static_cast<int>(count)) == 1);
  return bytes;
}

}  // namespace trainyard::tls
