// Reads texts of PEM one certificate after the other.
#include "common/tls/read.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/tls/openssl.h"

namespace trainyard::tls {
namespace {

// Chains have two or three certificates.
constexpr size_t kChainMax = 10;

}  // namespace

absl::StatusOr<std::vector<Certificate>> ReadCertificates(absl::string_view pem) {
  if (pem.size() > kPemBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the certificates have ", pem.size(), " bytes; at most ", kPemBytesMax, " are accepted"));
  }
  const BioPtr bio = MemoryBio(pem);
  std::vector<Certificate> chain;
  while (true) {
    const X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    if (chain.size() == kChainMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("there are more than ", kChainMax, " certificates"));
    }
    chain.push_back(FactsOf(*certificate));
  }
  // The end of the text looks like an error of its own to OpenSSL.
  const bool is_at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (chain.empty() || !is_at_end) {
    return OpenSslError(absl::StrCat("certificate ", chain.size() + 1, " is no PEM certificate"));
  }
  ERR_clear_error();
  return chain;
}

absl::Status CheckKeyPair(absl::string_view certificate_pem, absl::string_view key_pem) {
  TY_ASSIGN_OR_RETURN(const X509Ptr certificate, ReadFirstCertificate(certificate_pem));
  TY_ASSIGN_OR_RETURN(const KeyPtr key, ReadKey(key_pem));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return OpenSslError("the key does not belong to the certificate");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFingerprint(absl::string_view text) {
  constexpr size_t kDigits = 64;
  const auto refuse = [text] {
    return absl::InvalidArgumentError(
        absl::StrCat("fingerprint '", PlainText(std::string(text), 200),
                     "' is none; it has 64 hexadecimal digits, which colons may part"));
  };
  if (text.size() > 200) return refuse();
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  if (absl::StartsWithIgnoreCase(rest, "sha256:")) rest.remove_prefix(7);
  const std::string digits = absl::StrReplaceAll(rest, {{":", ""}});
  if (digits.size() != kDigits ||
      !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit)) {
    return refuse();
  }
  return FingerprintText(absl::HexStringToBytes(digits));
}

}  // namespace trainyard::tls
