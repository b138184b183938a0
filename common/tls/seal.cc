// Seals with AES-256-GCM of OpenSSL.
#include "common/tls/seal.h"

#include "common/base/check.h"
#include "common/tls/digest.h"
#include "common/tls/openssl.h"

namespace trainyard::tls {
namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

using CipherPtr = std::unique_ptr<EVP_CIPHER_CTX, Freer<EVP_CIPHER_CTX_free>>;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

unsigned char* Bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

}  // namespace

std::string Seal(absl::string_view key, absl::string_view text, absl::string_view about) {
  TY_CHECK(key.size() == kSealKeyBytes);
  const CipherPtr cipher(EVP_CIPHER_CTX_new());
  const std::string nonce = SecretBytes(kNonceBytes);
  std::string sealed(text.size(), '\0');
  std::string tag(kTagBytes, '\0');
  int size = 0;
  // None of these fails for a reason that lies in the text.
  TY_CHECK(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, Bytes(key), Bytes(nonce)) ==
           1);
  TY_CHECK(EVP_EncryptUpdate(cipher.get(), nullptr, &size, Bytes(about),
                             static_cast<int>(about.size())) == 1);
  TY_CHECK(EVP_EncryptUpdate(cipher.get(), Bytes(sealed), &size, Bytes(text),
                             static_cast<int>(text.size())) == 1);
  TY_CHECK(EVP_EncryptFinal_ex(cipher.get(), Bytes(sealed) + size, &size) == 1);
  TY_CHECK(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) == 1);
  return nonce + sealed + tag;
}

absl::StatusOr<std::string> Unseal(absl::string_view key, absl::string_view sealed,
                                   absl::string_view about) {
  TY_CHECK(key.size() == kSealKeyBytes);
  const absl::Status wrong = absl::DataLossError("it was sealed with another key, or has changed");
  if (sealed.size() < kNonceBytes + kTagBytes) return wrong;
  const absl::string_view nonce = sealed.substr(0, kNonceBytes);
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  sealed = sealed.substr(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes);
  const CipherPtr cipher(EVP_CIPHER_CTX_new());
  std::string text(sealed.size(), '\0');
  int size = 0;
  TY_CHECK(EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, Bytes(key), Bytes(nonce)) ==
           1);
  TY_CHECK(EVP_DecryptUpdate(cipher.get(), nullptr, &size, Bytes(about),
                             static_cast<int>(about.size())) == 1);
  TY_CHECK(EVP_DecryptUpdate(cipher.get(), Bytes(text), &size, Bytes(sealed),
                             static_cast<int>(sealed.size())) == 1);
  TY_CHECK(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1);
  if (EVP_DecryptFinal_ex(cipher.get(), Bytes(text) + size, &size) != 1) return wrong;
  return text;
}

}  // namespace trainyard::tls
