// Reads and writes small files, each of them at once.
#include "client/credentials/credentials.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/sign_in_errors.h"
#include "common/base/status_macros.h"
#include "common/tls/probe.h"
#include "common/tls/read.h"

namespace trainyard::credentials {
namespace {

constexpr absl::string_view kDefaultPort = ":7070";
constexpr int64_t kFileBytesMax = 64 * 1024;
constexpr absl::Duration kProbeTimeout = absl::Seconds(10);

absl::Status CheckPrivate(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path);
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("other users may read the token in '", path,
                   "'; revoke it, or use chmod 0600 if you know that nobody has read it"));
}

}  // namespace

absl::StatusOr<rpc::Address> ReadServer(absl::string_view text) {
  if (absl::StartsWith(text, "unix:") || absl::StartsWith(text, "ssh://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' needs no sign-in; use it as --server"));
  }
  absl::string_view host = text;
  if (!absl::ConsumePrefix(&host, "tls://")) absl::ConsumePrefix(&host, "tls:");
  const bool is_bare_ipv6 = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  const bool has_port = !is_bare_ipv6 && absl::StrContains(host, ':');
  TY_ASSIGN_OR_RETURN(rpc::Address address, rpc::ParseAddress(absl::StrCat(
                                                "tls://", host, has_port ? "" : kDefaultPort)));
  if (address.port == 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' has port 0"));
  }
  return address;
}

CredentialStore::CredentialStore(absl::string_view config_home)
    : folder_(JoinPath(config_home, "trainyard/servers")) {}

// The host of an address has no slash, and cannot be "..", since the port follows.
std::string CredentialStore::Folder(const rpc::Address& server) const {
  return JoinPath(folder_, absl::StrCat(server.host, "_", server.port));
}

absl::StatusOr<rpc::TlsOptions> CredentialStore::Load(const rpc::Address& server) const {
  const std::string folder = Folder(server);
  rpc::TlsOptions options;
  TY_ASSIGN_OR_RETURN(options.authority,
                      ReadFile(JoinPath(folder, "authority.pem"), kFileBytesMax));
  TY_ASSIGN_OR_RETURN(options.server_name, ReadFile(JoinPath(folder, "name"), kFileBytesMax));
  absl::StripAsciiWhitespace(&options.server_name);
  auto token_file = ReadFile(JoinPath(folder, "token_file"), kFileBytesMax);
  if (token_file.ok()) {
    options.token_file = token_file->substr(0, token_file->find('\n'));
    return options;
  }
  if (!absl::IsNotFound(token_file.status())) return token_file.status();
  const std::string token = JoinPath(folder, "token");
  TY_RETURN_IF_ERROR(CheckPrivate(token));
  TY_ASSIGN_OR_RETURN(options.token, ReadFile(token, kFileBytesMax));
  absl::StripAsciiWhitespace(&options.token);
  return options;
}

absl::StatusOr<std::string> CredentialStore::LoadPin(const rpc::Address& server) const {
  auto pin = ReadFile(JoinPath(Folder(server), "authority.pem"), kFileBytesMax);
  if (absl::IsNotFound(pin.status())) return "";
  if (pin.ok()) return pin;
  return Annotate(pin.status(),
                  absl::StrCat("the certificate that was accepted for ", server.ToString(),
                               " cannot be read, and nothing was sent there"));
}

absl::Status CredentialStore::Save(const rpc::Address& server,
                                   const rpc::TlsOptions& options) const {
  const std::string folder = Folder(server);
  TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  TY_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(folder, "authority.pem"), options.authority, 0600));
  TY_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(folder, "name"), absl::StrCat(options.server_name, "\n"), 0600));
  const bool is_renewed = !options.token_file.empty();
  TY_RETURN_IF_ERROR(WriteFileAtomically(
      JoinPath(folder, is_renewed ? "token_file" : "token"),
      absl::StrCat(is_renewed ? options.token_file : options.token, "\n"), 0600));
  // The other one is that of an earlier sign-in.
  const std::string other = JoinPath(folder, is_renewed ? "token" : "token_file");
  if (unlink(other.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, "cannot remove", other);
  }
  return absl::OkStatus();
}

absl::Status CredentialStore::Forget(const rpc::Address& server) const {
  const std::string folder = Folder(server);
  if (!FileExists(folder)) {
    return absl::NotFoundError(absl::StrCat("you are not signed in to ", server.ToString()));
  }
  return RemoveTree(folder);
}

absl::Status ExplainFailure(const rpc::Address& server, const rpc::TlsOptions& pinned,
                            const absl::Status& failure, absl::Time now) {
  const auto chain = tls::ProbeServer(server.host, server.port, kProbeTimeout);
  const auto pin = tls::ReadCertificates(pinned.authority);
  if (!chain.ok() || !pin.ok()) return failure;
  const std::string& expected = pin->front().fingerprint;
  bool is_shown = false;
  for (const tls::Certificate& shown : *chain) is_shown |= shown.fingerprint == expected;
  if (!is_shown) {
    return error::CertificateChanged(server.Target(), expected, tls::PinOf(*chain).fingerprint);
  }
  const absl::Status times = tls::CheckTimes(server.Target(), *chain, now);
  return times.ok() ? failure : times;
}

}  // namespace trainyard::credentials
