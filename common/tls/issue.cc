// Makes certificates with OpenSSL. Names are put into them as objects and never as text of
// OpenSSL's configuration language, in which a name with a comma could be two.
#include "common/tls/issue.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/worker_name.h"
#include "common/tls/certificate.h"
#include "common/tls/openssl.h"

namespace trainyard::tls {
namespace {

constexpr int kSerialBits = 127;
constexpr long kVersion3 = 2;
// A request of a worker has about 500 bytes.
constexpr size_t kRequestBytesMax = 16 * 1024;

// The parts of which a certificate is made.
struct Draft {
  std::string subject;
  absl::Time not_before;
  absl::Time not_after;
  NamesPtr names;
  std::string usage;           // the value of keyUsage
  std::string extended_usage;  // the value of extendedKeyUsage; empty for an authority
};

std::string KeyText(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  TY_CHECK(bio != nullptr);
  TY_CHECK(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return BioText(bio.get());
}

void AddName(GENERAL_NAMES& names, int type, absl::string_view value) {
  ASN1_STRING* text = type == GEN_IPADD ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
  TY_CHECK(text != nullptr &&
           ASN1_STRING_set(text, value.data(), static_cast<int>(value.size())) == 1);
  GENERAL_NAME* name = GENERAL_NAME_new();
  TY_CHECK(name != nullptr);
  GENERAL_NAME_set0_value(name, type, text);
  TY_CHECK(sk_GENERAL_NAME_push(&names, name) > 0);
}

bool IsHostName(absl::string_view host) {
  if (host.empty() || host.size() > 253) return false;
  for (const absl::string_view label : absl::StrSplit(host, '.')) {
    if (label.empty() || label.size() > 63) return false;
    if (label == "*") continue;
    const auto is_fine = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; };
    if (!std::all_of(label.begin(), label.end(), is_fine)) return false;
  }
  return true;
}

absl::Status AddHost(GENERAL_NAMES& names, const std::string& host) {
  std::array<char, sizeof(in6_addr)> address{};
  if (inet_pton(AF_INET, host.c_str(), address.data()) == 1) {
    AddName(names, GEN_IPADD, absl::string_view(address.data(), sizeof(in_addr)));
  } else if (inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
    AddName(names, GEN_IPADD, absl::string_view(address.data(), sizeof(in6_addr)));
  } else if (IsHostName(host)) {
    AddName(names, GEN_DNS, host);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("'", host, "' is neither the name of a host nor an address"));
  }
  return absl::OkStatus();
}

NamesPtr NoNames() {
  NamesPtr names(sk_GENERAL_NAME_new_null());
  TY_CHECK(names != nullptr);
  return names;
}

NamesPtr NamesOfWorker(absl::string_view worker) {
  NamesPtr names = NoNames();
  AddName(*names, GEN_URI, absl::StrCat(kWorkerUri, worker));
  return names;
}

// Adds an extension whose value is a constant of this file.
void AddExtension(X509& certificate, X509V3_CTX& context, int nid, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  TY_CHECK(extension != nullptr && X509_add_ext(&certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

void SetSerial(X509& certificate) {
  const BignumPtr number(BN_new());
  TY_CHECK(number != nullptr &&
           BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1);
  TY_CHECK(BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(&certificate)) != nullptr);
}

void SetSubject(X509& certificate, const std::string& common_name) {
  X509_NAME* name = X509_get_subject_name(&certificate);
  for (const auto& [field, value] : {std::pair<const char*, std::string>{"O", "Trainyard"},
                                     std::pair<const char*, std::string>{"CN", common_name}}) {
    TY_CHECK(X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                        reinterpret_cast<const unsigned char*>(value.c_str()), -1,
                                        -1, 0) == 1);
  }
}

// Makes a certificate for `key`, signed by `issuer`, or by itself if that is null.
X509Ptr Sign(const Draft& draft, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  X509Ptr certificate(X509_new());
  TY_CHECK(certificate != nullptr && X509_set_version(certificate.get(), kVersion3) == 1);
  SetSerial(*certificate);
  SetSubject(*certificate, draft.subject);
  X509* const parent = issuer == nullptr ? certificate.get() : issuer;
  TY_CHECK(X509_set_issuer_name(certificate.get(), X509_get_subject_name(parent)) == 1);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(draft.not_before));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(draft.not_after));
  TY_CHECK(X509_set_pubkey(certificate.get(), key) == 1);
  X509V3_CTX context;
  X509V3_set_ctx(&context, parent, certificate.get(), nullptr, nullptr, 0);
  const bool is_authority = draft.extended_usage.empty();
  AddExtension(*certificate, context, NID_basic_constraints,
               is_authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE");
  AddExtension(*certificate, context, NID_key_usage, absl::StrCat("critical,", draft.usage));
  if (!is_authority) AddExtension(*certificate, context, NID_ext_key_usage, draft.extended_usage);
  AddExtension(*certificate, context, NID_subject_key_identifier, "hash");
  AddExtension(*certificate, context, NID_authority_key_identifier, "keyid");
  if (draft.names != nullptr) {
    TY_CHECK(X509_add1_ext_i2d(certificate.get(), NID_subject_alt_name, draft.names.get(), 0,
                               X509V3_ADD_DEFAULT) == 1);
  }
  TY_CHECK(X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0);
  return certificate;
}

// Returns a certificate signed by the authority, as PEM.
absl::StatusOr<std::string> SignBy(const KeyPair& authority, const Draft& draft, EVP_PKEY* key) {
  TY_ASSIGN_OR_RETURN(const X509Ptr issuer, ReadFirstCertificate(authority.certificate));
  TY_ASSIGN_OR_RETURN(const KeyPtr issuer_key, ReadKey(authority.key));
  return FactsOf(*Sign(draft, key, issuer.get(), issuer_key.get())).pem;
}

// Returns the names for which a request asks.
NamesPtr NamesInRequest(X509_REQ& request) {
  STACK_OF(X509_EXTENSION)* extensions = X509_REQ_get_extensions(&request);
  NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509V3_get_d2i(extensions, NID_subject_alt_name, nullptr, nullptr)));
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  return names;
}

absl::Status CheckRequest(X509_REQ& request, absl::string_view worker) {
  EVP_PKEY* key = X509_REQ_get0_pubkey(&request);
  if (key == nullptr) return OpenSslError("the request for a certificate has no key");
  // The kind is looked at first, because a signature of another kind may take long to verify.
  std::array<char, 32> group{};
  if (EVP_PKEY_get_group_name(key, group.data(), group.size(), nullptr) != 1 ||
      absl::string_view(group.data()) != "prime256v1") {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        "the request for a certificate has a key of another kind; use ECDSA with P-256");
  }
  if (X509_REQ_verify(&request, key) != 1) {
    return OpenSslError("the request for a certificate is not signed by its own key");
  }
  const NamesPtr names = NamesInRequest(request);
  const std::string asked = names == nullptr ? "" : WorkerNameIn(names.get());
  ERR_clear_error();
  if (names == nullptr || sk_GENERAL_NAME_num(names.get()) != 1 || asked != worker) {
    return absl::InvalidArgumentError(absl::StrCat("the request for a certificate is for worker '",
                                                   asked, "', and only '", worker,
                                                   "' alone may be asked for"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsHost(const std::string& text) {
  return AddHost(*NoNames(), text).ok();
}

bool IsDueForRenewal(absl::Time not_before, absl::Time not_after, absl::Time now) {
  return now >= not_after - (not_after - not_before) / 3;
}

std::string MakeKey() {
  const KeyPtr key(EVP_EC_gen("P-256"));
  TY_CHECK(key != nullptr);
  return KeyText(key.get());
}

KeyPair MakeAuthority(absl::string_view host, absl::Time now) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  TY_CHECK(key != nullptr);
  // A common name has at most 64 characters.
  const Draft draft = {absl::StrCat("authority of ", host).substr(0, 64),
                       now - kBackdated,
                       now + kAuthorityLifetime,
                       nullptr,
                       "keyCertSign,cRLSign",
                       ""};
  return {KeyText(key.get()), FactsOf(*Sign(draft, key.get(), nullptr, key.get())).pem};
}

absl::StatusOr<KeyPair> IssueForServer(const KeyPair& authority,
                                       const std::vector<std::string>& hosts, absl::Time now) {
  NamesPtr names = NoNames();
  AddName(*names, GEN_DNS, kServerName);
  for (const std::string& host : hosts) TY_RETURN_IF_ERROR(AddHost(*names, host));
  const KeyPtr key(EVP_EC_gen("P-256"));
  TY_CHECK(key != nullptr);
  const Draft draft = {"server",         now - kBackdated,   now + kServerLifetime,
                       std::move(names), "digitalSignature", "serverAuth"};
  TY_ASSIGN_OR_RETURN(std::string certificate, SignBy(authority, draft, key.get()));
  return KeyPair{KeyText(key.get()), std::move(certificate)};
}

absl::StatusOr<std::string> MakeWorkerRequest(absl::string_view key, absl::string_view worker) {
  TY_ASSIGN_OR_RETURN(const KeyPtr pair, ReadKey(key));
  const RequestPtr request(X509_REQ_new());
  TY_CHECK(request != nullptr && X509_REQ_set_pubkey(request.get(), pair.get()) == 1);
  const NamesPtr names = NamesOfWorker(worker);
  X509_EXTENSION* extension = X509V3_EXT_i2d(NID_subject_alt_name, 0, names.get());
  TY_CHECK(extension != nullptr);
  STACK_OF(X509_EXTENSION)* extensions = sk_X509_EXTENSION_new_null();
  TY_CHECK(extensions != nullptr && sk_X509_EXTENSION_push(extensions, extension) > 0);
  TY_CHECK(X509_REQ_add_extensions(request.get(), extensions) == 1);
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  TY_CHECK(X509_REQ_sign(request.get(), pair.get(), EVP_sha256()) > 0);
  const BioPtr bio(BIO_new(BIO_s_mem()));
  TY_CHECK(bio != nullptr && PEM_write_bio_X509_REQ(bio.get(), request.get()) == 1);
  return BioText(bio.get());
}

absl::StatusOr<std::string> SignWorkerRequest(const KeyPair& authority, absl::string_view request,
                                              absl::string_view worker, absl::Time now,
                                              absl::Time earliest_begin) {
  if (!IsWorkerName(worker)) {
    return absl::InvalidArgumentError(absl::StrCat("'", worker, "' is no name of a worker"));
  }
  if (request.size() > kRequestBytesMax) {
    return absl::InvalidArgumentError("the request for a certificate is too large");
  }
  const RequestPtr parsed(
      PEM_read_bio_X509_REQ(MemoryBio(request).get(), nullptr, nullptr, nullptr));
  if (parsed == nullptr) return OpenSslError("there is no request for a certificate in PEM");
  TY_RETURN_IF_ERROR(CheckRequest(*parsed, worker));
  const Draft draft = {absl::StrCat("worker ", worker).substr(0, 64),
                       std::max(now - kBackdated, earliest_begin),
                       now + kWorkerLifetime,
                       NamesOfWorker(worker),
                       "digitalSignature",
                       "clientAuth"};
  return SignBy(authority, draft, X509_REQ_get0_pubkey(parsed.get()));
}

}  // namespace trainyard::tls
