// Takes digests and secrets from OpenSSL.
#include "common/tls/digest.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include "common/base/check.h"

namespace trainyard::tls {

std::string Sha256(absl::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string SecretBytes(size_t count) {
  std::string bytes(count, '\0');
  // Without a source of randomness there is no safe way to continue.
  TY_CHECK(RAND_priv_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                           static_cast<int>(count)) == 1);
  return bytes;
}

}  // namespace trainyard::tls
