// Reads what strangers send to sign in or to join, as servers and workers read it: tokens,
// fingerprints, names of servers, and PEM texts of certificates, keys and requests.
#include "client/credentials/credentials.h"
#include "common/base/check.h"
#include "common/base/token_form.h"
#include "common/base/worker_name.h"
#include "common/tls/digest.h"
#include "common/tls/issue.h"
#include "common/tls/read.h"
#include "server/access/tokens.h"
#include "server/tls/context.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::sign_in {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::string_view kWorker = "gamma";

const tls::KeyPair& Authority() {
  static const auto* authority = new tls::KeyPair(tls::MakeAuthority("lab.example", kNow));
  return *authority;
}

// A table with one token of each kind, whose texts stand in the corpus.
access::TokenTable& Tokens() {
  static auto* table = [] {
    auto* made = new access::TokenTable;
    for (const access::TokenKind kind : {access::TokenKind::kUser, access::TokenKind::kJoin}) {
      access::TokenRecord record;
      record.kind = kind;
      record.id = std::string(access::TokenKindText(kind));
      record.user = "anna";
      record.expires = kNow + absl::Hours(1);
      const bool is_user = kind == access::TokenKind::kUser;
      record.hash = tls::Sha256(
          TokenText(is_user ? kUserTokenPrefix : kJoinTokenPrefix, std::string(32, 'k')));
      made->Add(record);
    }
    return made;
  }();
  return *table;
}

void ReadToken(absl::string_view text) {
  const bool is_user = CheckTokenForm(text, kUserTokenPrefix).ok();
  const bool is_join = CheckTokenForm(text, kJoinTokenPrefix).ok();
  TY_CHECK(!is_user || !is_join);
  for (const access::TokenKind kind : {access::TokenKind::kUser, access::TokenKind::kJoin}) {
    const auto used = Tokens().Use(text, kind, kNow);
    const bool has_form = kind == access::TokenKind::kUser ? is_user : is_join;
    TY_CHECK(!used.ok() || (has_form && used->kind == kind));
    // An error that repeats a token would carry it into logs.
    if (!used.ok() && text.size() >= kTokenBytes) {
      TY_CHECK(used.status().message().find(text) == absl::string_view::npos);
    }
  }
}

void ReadNames(absl::string_view text) {
  if (const auto print = tls::ReadFingerprint(text); print.ok()) {
    const auto again = tls::ReadFingerprint(*print);
    TY_CHECK_OK(again.status());
    TY_CHECK(*again == *print);
  }
  if (const auto server = credentials::ReadServer(text); server.ok()) {
    TY_CHECK(server->port != 0);
    // The host is a part of a path.
    TY_CHECK(server->host.find('/') == std::string::npos);
    TY_CHECK(server->host.find('\0') == std::string::npos);
    const auto again = credentials::ReadServer(server->ToString());
    TY_CHECK_OK(again.status());
    TY_CHECK(again->ToString() == server->ToString());
  }
}

void ReadPem(absl::string_view text) {
  if (const auto chain = tls::ReadCertificates(text); chain.ok()) {
    for (const tls::Certificate& certificate : *chain) {
      TY_CHECK(certificate.worker.empty() || IsWorkerName(certificate.worker));
      const auto again = tls::ReadCertificates(certificate.pem);
      TY_CHECK_OK(again.status());
      TY_CHECK(again->size() == 1 && again->front().fingerprint == certificate.fingerprint);
    }
    // Nobody has the key of a stranger's certificate.
    TY_CHECK(!tls::CheckKeyPair(text, Authority().key).ok());
    (void)tls::MakeServerContext({Authority().key, Authority().certificate, std::string(text)});
    (void)tls::MakeServerContext({Authority().key, std::string(text), Authority().certificate});
  }
  (void)tls::CheckKeyPair(text, text);
  (void)tls::CheckKeyPair(Authority().certificate, text);
}

void ReadRequest(absl::string_view text) {
  const auto made = tls::SignWorkerRequest(Authority(), text, kWorker, kNow);
  if (!made.ok()) return;
  const auto chain = tls::ReadCertificates(*made);
  TY_CHECK_OK(chain.status());
  const tls::Certificate& certificate = chain->front();
  TY_CHECK(certificate.worker == kWorker && !certificate.is_authority);
  TY_CHECK(certificate.hosts.empty());
}

void Run(absl::string_view text) {
  ReadToken(text);
  ReadNames(text);
  ReadPem(text);
  ReadRequest(text);
}

const Registration kTarget({.name = "sign_in", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::sign_in
