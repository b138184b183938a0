// Reads what OpenSSL has parsed.
#include "common/tls/openssl.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/base/worker_name.h"

namespace trainyard::tls {
namespace {

constexpr size_t kSubjectBytesMax = 200;

// Returns the time, or the infinite past if OpenSSL cannot read it.
absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string FingerprintOf(const X509& certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  TY_CHECK(X509_digest(&certificate, EVP_sha256(), digest.data(), &size) == 1);
  return FingerprintText(absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

std::string KeyFingerprintOf(const X509& certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  TY_CHECK(X509_pubkey_digest(&certificate, EVP_sha256(), digest.data(), &size) == 1);
  return FingerprintText(absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

absl::string_view TextOf(const ASN1_STRING* string) {
  return absl::string_view(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                           static_cast<size_t>(ASN1_STRING_length(string)));
}

std::string AddressText(absl::string_view bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
  if (family == AF_INET6 && bytes.size() != sizeof(in6_addr)) return "";
  return inet_ntop(family, bytes.data(), text.data(), text.size()) == nullptr ? "" : text.data();
}

std::vector<std::string> HostsIn(const GENERAL_NAMES* names) {
  std::vector<std::string> hosts;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_DNS) {
      hosts.push_back(PlainText(std::string(TextOf(name->d.dNSName)), kSubjectBytesMax));
    } else if (name->type == GEN_IPADD) {
      hosts.push_back(AddressText(TextOf(name->d.iPAddress)));
    }
  }
  return hosts;
}

std::string SubjectOf(const X509& certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  TY_CHECK(bio != nullptr);
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(&certificate), 0, XN_FLAG_RFC2253);
  return PlainText(BioText(bio.get()), kSubjectBytesMax);
}

}  // namespace

std::string FingerprintText(absl::string_view digest) {
  std::string text;
  for (const char byte : digest) {
    const std::string digits = absl::BytesToHexString(absl::string_view(&byte, 1));
    absl::StrAppend(&text, text.empty() ? "" : ":", absl::AsciiStrToUpper(digits));
  }
  return text;
}

absl::Status OpenSslError(absl::string_view what) {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return absl::InvalidArgumentError(reason == nullptr ? std::string(what)
                                                      : absl::StrCat(what, ": ", reason));
}

BioPtr MemoryBio(absl::string_view text) {
  TY_CHECK(text.size() <= static_cast<size_t>(std::numeric_limits<int>::max()));
  BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  TY_CHECK(bio != nullptr);
  return bio;
}

std::string BioText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : "";
}

absl::StatusOr<KeyPtr> ReadKey(absl::string_view pem) {
  if (pem.size() > kPemBytesMax) return absl::InvalidArgumentError("the key is too large");
  // Without a callback, OpenSSL would ask the terminal for the passphrase of an encrypted key.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  KeyPtr key(PEM_read_bio_PrivateKey(MemoryBio(pem).get(), nullptr, no_passphrase, nullptr));
  if (key == nullptr) {
    return OpenSslError("the key is no private key in PEM without a passphrase");
  }
  return key;
}

absl::StatusOr<X509Ptr> ReadFirstCertificate(absl::string_view pem) {
  if (pem.size() > kPemBytesMax) return absl::InvalidArgumentError("the certificate is too large");
  X509Ptr certificate(PEM_read_bio_X509(MemoryBio(pem).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return OpenSslError("there is no certificate in PEM");
  return certificate;
}

std::string WorkerNameIn(const GENERAL_NAMES* names) {
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    absl::string_view uri = TextOf(name->d.uniformResourceIdentifier);
    if (absl::ConsumePrefix(&uri, kWorkerUri) && IsWorkerName(uri)) return std::string(uri);
  }
  return "";
}

Certificate FactsOf(X509& certificate) {
  Certificate facts;
  const BioPtr bio(BIO_new(BIO_s_mem()));
  TY_CHECK(bio != nullptr && PEM_write_bio_X509(bio.get(), &certificate) == 1);
  facts.pem = BioText(bio.get());
  facts.fingerprint = FingerprintOf(certificate);
  facts.key_fingerprint = KeyFingerprintOf(certificate);
  facts.subject = SubjectOf(certificate);
  facts.not_before = TimeOf(X509_get0_notBefore(&certificate));
  facts.not_after = TimeOf(X509_get0_notAfter(&certificate));
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (names != nullptr) {
    facts.hosts = HostsIn(names.get());
    facts.worker = WorkerNameIn(names.get());
  }
  facts.is_authority = X509_check_ca(&certificate) == 1;
  ERR_clear_error();
  return facts;
}

}  // namespace trainyard::tls
