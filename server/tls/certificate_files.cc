// Reads and writes the files of certificates. Files are watched by inotify; where that is not
// possible, the caller's regular calls find the changes.
#include "server/tls/certificate_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/worker_name.h"
#include "common/tls/probe.h"
#include "common/tls/read.h"

namespace trainyard::tls {
namespace {

constexpr int64_t kFileBytesMax = 64 * 1024;
// An administrator hears of the site's certificate this long before its end.
constexpr absl::Duration kWarnBefore = absl::Hours(24 * 14);

absl::StatusOr<std::string> ReadText(const std::string& path) {
  return ReadFile(path, kFileBytesMax);
}

// Refuses a key that other users of the system may read. A group may, as that of Debian's ssl-cert.
absl::Status CheckPrivate(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path);
  if ((info.st_mode & (S_IRWXG | S_IRWXO) & ~S_IRGRP) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("other users may reach the key '", path, "'; use chmod 0600"));
}

std::vector<std::string> HostsOf(const std::vector<std::string>& names) {
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  // A name that is no host name would only keep the server from starting.
  if (IsHost(Hostname())) hosts.insert(hosts.begin(), Hostname());
  for (const std::string& name : names) {
    if (std::find(hosts.begin(), hosts.end(), name) == hosts.end()) hosts.push_back(name);
  }
  return hosts;
}

}  // namespace

CertificateFiles::CertificateFiles(CertificateOptions options, Clock& clock)
    : options_(std::move(options)), clock_(clock) {}

absl::StatusOr<std::unique_ptr<CertificateFiles>> CertificateFiles::Open(CertificateOptions options,
                                                                         Clock& clock) {
  if (options.certificate.empty() != options.key.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key belong together; give both");
  }
  std::unique_ptr<CertificateFiles> files(new CertificateFiles(std::move(options), clock));
  TY_RETURN_IF_ERROR(MakeDirectories(files->options_.folder, 0700));
  TY_RETURN_IF_ERROR(files->OpenAuthority());
  if (files->options_.certificate.empty()) TY_RETURN_IF_ERROR(files->RenewOwn());
  files->Watch();
  TY_RETURN_IF_ERROR(files->Load());
  TY_RETURN_IF_ERROR(WriteFileAtomically(files->Path("fingerprint"),
                                         absl::StrCat(files->pin().fingerprint, "\n"), 0644));
  return files;
}

std::string CertificateFiles::Path(absl::string_view name) const {
  return JoinPath(options_.folder, name);
}

absl::Status CertificateFiles::OpenAuthority() {
  const std::string key = Path("authority.key");
  const std::string certificate = Path("authority.pem");
  if (!FileExists(certificate)) {
    // The certificate is written last, so a start that was interrupted is begun again.
    authority_ = MakeAuthority(Hostname(), clock_.Now());
    TY_RETURN_IF_ERROR(WriteFileAtomically(key, authority_.key, 0600));
    return WriteFileAtomically(certificate, authority_.certificate, 0644);
  }
  TY_RETURN_IF_ERROR(CheckPrivate(key));
  TY_ASSIGN_OR_RETURN(authority_.key, ReadText(key));
  TY_ASSIGN_OR_RETURN(authority_.certificate, ReadText(certificate));
  return Annotate(CheckKeyPair(authority_.certificate, authority_.key), certificate);
}

absl::Status CertificateFiles::RenewOwn() {
  const std::vector<std::string> hosts = HostsOf(options_.names);
  const auto text = ReadText(Path("server.pem"));
  const auto key = ReadText(Path("server.key"));
  if (text.ok() && key.ok() && CheckKeyPair(*text, *key).ok()) {
    const auto chain = ReadCertificates(*text);
    const auto names_host = [&chain](const std::string& host) {
      const std::vector<std::string>& known = chain->front().hosts;
      return std::find(known.begin(), known.end(), host) != known.end();
    };
    if (chain.ok() && chain->back().pem == authority_.certificate &&
        std::all_of(hosts.begin(), hosts.end(), names_host) &&
        !IsDueForRenewal(chain->front().not_before, chain->front().not_after, clock_.Now())) {
      return absl::OkStatus();
    }
  }
  TY_ASSIGN_OR_RETURN(const KeyPair made, IssueForServer(authority_, hosts, clock_.Now()));
  LogInfo("made a certificate for the server", {{"hosts", absl::StrJoin(hosts, ", ")}});
  // A reader between the two writes finds a key that does not fit, and keeps what it has.
  TY_RETURN_IF_ERROR(WriteFileAtomically(Path("server.key"), made.key, 0600));
  return WriteFileAtomically(Path("server.pem"),
                             absl::StrCat(made.certificate, authority_.certificate), 0644);
}

absl::StatusOr<ServerMaterial> CertificateFiles::Read() const {
  const bool is_own = options_.certificate.empty();
  const std::string key = is_own ? Path("server.key") : options_.key;
  TY_RETURN_IF_ERROR(CheckPrivate(key));
  ServerMaterial material;
  TY_ASSIGN_OR_RETURN(material.key, ReadText(key));
  TY_ASSIGN_OR_RETURN(material.chain, ReadText(is_own ? Path("server.pem") : options_.certificate));
  material.client_authorities = authority_.certificate;
  if (!options_.client_authorities.empty()) {
    TY_ASSIGN_OR_RETURN(const std::string further, ReadText(options_.client_authorities));
    TY_RETURN_IF_ERROR(Annotate(ReadCertificates(further).status(), options_.client_authorities));
    absl::StrAppend(&material.client_authorities, further);
  }
  return material;
}

absl::Status CertificateFiles::Load() {
  TY_ASSIGN_OR_RETURN(ServerMaterial material, Read());
  const bool is_first = this->context() == nullptr;
  if (!is_first && material == material_) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(SharedContext context, MakeServerContext(material));
  TY_ASSIGN_OR_RETURN(const auto chain, ReadCertificates(material.chain));
  WarnOfEnd(chain.front());
  if (!is_first) TellChange(chain);
  material_ = std::move(material);
  const MutexLock lock(&mutex_);
  pin_ = PinOf(chain);
  hosts_ = chain.front().hosts;
  context_ = std::move(context);
  return absl::OkStatus();
}

SharedContext CertificateFiles::context() const {
  const MutexLock lock(&mutex_);
  return context_;
}

void CertificateFiles::TellChange(const std::vector<Certificate>& chain) const {
  LogInfo("new connections get the new certificate",
          {{"fingerprint", chain.front().fingerprint},
           {"expires", absl::FormatTime(chain.front().not_after)}});
  const std::string old = pin().fingerprint;
  if (PinOf(chain).fingerprint == old) return;
  LogWarning(
      "clients that have pinned the old certificate refuse the new one until their users "
      "sign in again",
      {{"old", old}, {"new", PinOf(chain).fingerprint}});
}

Certificate CertificateFiles::pin() const {
  const MutexLock lock(&mutex_);
  return pin_;
}

std::vector<std::string> CertificateFiles::hosts() const {
  const MutexLock lock(&mutex_);
  return hosts_;
}

void CertificateFiles::WarnOfEnd(const Certificate& certificate) {
  const absl::Duration left = certificate.not_after - clock_.Now();
  if (left > kWarnBefore || warned_of_ == certificate.not_after) return;
  warned_of_ = certificate.not_after;
  LogWarning(left > absl::ZeroDuration()
                 ? "the server's certificate ends soon; put a new one in its place"
                 : "the server's certificate has expired, and clients refuse it",
             {{"expires", absl::FormatTime(certificate.not_after)}});
}

void CertificateFiles::Watch() {
  auto watch = FileWatch::Create();
  if (!watch.ok()) {
    LogWarning("certificates are looked at once a minute, because files cannot be watched",
               {{"error", std::string(watch.status().message())}});
    return;
  }
  std::set<std::string> folders = {options_.folder};
  for (const std::string& path :
       {options_.certificate, options_.key, options_.client_authorities}) {
    if (!path.empty()) folders.insert(std::filesystem::absolute(path).parent_path().string());
  }
  for (const std::string& folder : folders) {
    const absl::Status added = watch->Add(folder).status();
    if (!added.ok()) LogWarning(added.message());
  }
  watch_.emplace(*std::move(watch));
}

void CertificateFiles::Refresh() {
  if (watch_.has_value()) watch_->Take();
  absl::Status status = absl::OkStatus();
  if (options_.certificate.empty()) status = RenewOwn();
  if (status.ok()) status = Load();
  if (status.ok()) return;
  LogWarning("the certificate that was loaded before stays in use, because the files are not right",
             {{"error", std::string(status.message())}});
}

absl::StatusOr<Certificate> CertificateFiles::SignWorker(absl::string_view request,
                                                         absl::string_view worker,
                                                         absl::Time earliest_begin) const {
  TY_ASSIGN_OR_RETURN(const std::string pem,
                      SignWorkerRequest(authority_, request, worker, clock_.Now(), earliest_begin));
  TY_ASSIGN_OR_RETURN(std::vector<Certificate> made, ReadCertificates(pem));
  return std::move(made.front());
}

}  // namespace trainyard::tls
