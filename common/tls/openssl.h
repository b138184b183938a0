// Owns the objects of OpenSSL and turns its errors into statuses. Only the sources of common/tls
// and server/tls include it, so that nobody else depends on OpenSSL's headers.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tls/certificate.h"

namespace trainyard::tls {

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using BignumPtr = std::unique_ptr<BIGNUM, Freer<BN_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Freer<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, Freer<X509_REQ_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;
using SslPtr = std::unique_ptr<SSL, Freer<SSL_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;

// Returns INVALID_ARGUMENT with `what` and the newest error of OpenSSL, and empties its queue.
absl::Status OpenSslError(absl::string_view what);

// A certificate has about 1 KiB. The limit keeps a damaged or a hostile text from taking much
// memory.
inline constexpr size_t kPemBytesMax = 64 * 1024;

// Returns a view of `text` that OpenSSL reads.
BioPtr MemoryBio(absl::string_view text);
// Returns what was written into a memory BIO.
std::string BioText(BIO* bio);

absl::StatusOr<KeyPtr> ReadKey(absl::string_view pem);
absl::StatusOr<X509Ptr> ReadFirstCertificate(absl::string_view pem);
// Returns the digest of a certificate as people read it: "AB:CD:...".
std::string FingerprintText(absl::string_view digest);
// Says what a certificate holds.
Certificate FactsOf(X509& certificate);
// Returns the name of the worker that stands in the alternative names, or "".
std::string WorkerNameIn(const GENERAL_NAMES* names);

}  // namespace trainyard::tls
