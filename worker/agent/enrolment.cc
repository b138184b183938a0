// Keeps the key when it renews the certificate, so that the two files always fit together. The key
// with which it joins has a file of its own until it has joined: if the answer gets lost, the
// server answers that key alone again. A worker that joins anew gets a new key, because whoever
// revoked the last certificate may not trust the old one.
#include "worker/agent/enrolment.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/sign_in_errors.h"
#include "common/base/status_macros.h"
#include "common/base/token_form.h"
#include "common/rpc/status.h"
#include "common/tls/digest.h"
#include "common/tls/issue.h"
#include "common/tls/probe.h"
#include "common/tls/read.h"

namespace trainyard::agent {
namespace {

constexpr int64_t kFileBytesMax = 64 * 1024;
constexpr absl::Duration kCallTimeout = absl::Seconds(30);
constexpr absl::Duration kProbeTimeout = absl::Seconds(5);
constexpr absl::Duration kRenewalInterval = absl::Minutes(10);

std::string KeyPath(const EnrolmentOptions& options) {
  return JoinPath(options.folder, "worker.key");
}
std::string JoiningKeyPath(const EnrolmentOptions& options) {
  return JoinPath(options.folder, "joining.key");
}
std::string CertificatePath(const EnrolmentOptions& options) {
  return JoinPath(options.folder, "worker.pem");
}
std::string AuthorityPath(const EnrolmentOptions& options) {
  return JoinPath(options.folder, "authority.pem");
}
// This file has the digest of the invitation with which the worker has joined.
std::string InvitationPath(const EnrolmentOptions& options) {
  return JoinPath(options.folder, "invitation");
}
std::string NamePath(const EnrolmentOptions& options) {
  return JoinPath(options.folder, "server_name");
}

// Returns the worker's certificate, or why it cannot be used.
absl::StatusOr<tls::Certificate> ReadOwn(const EnrolmentOptions& options, absl::Time now) {
  TY_ASSIGN_OR_RETURN(const std::string pem, ReadFile(CertificatePath(options), kFileBytesMax));
  TY_ASSIGN_OR_RETURN(const std::string key, ReadFile(KeyPath(options), kFileBytesMax));
  TY_RETURN_IF_ERROR(tls::CheckKeyPair(pem, key));
  TY_ASSIGN_OR_RETURN(std::vector<tls::Certificate> chain, tls::ReadCertificates(pem));
  tls::Certificate& own = chain.front();
  if (own.worker != options.worker) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is for worker '", own.worker, "', not for '", options.worker, "'"));
  }
  if (now >= own.not_after) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has expired at ", absl::FormatTime(own.not_after),
                     ", and the clock of this host shows ", absl::FormatTime(now)));
  }
  return std::move(own);
}

// Looks at the server, and returns how to recognise it from now on.
absl::StatusOr<rpc::TlsOptions> Recognise(const EnrolmentOptions& options, absl::Time now) {
  TY_ASSIGN_OR_RETURN(const std::string fingerprint, tls::ReadFingerprint(options.fingerprint));
  TY_ASSIGN_OR_RETURN(const auto chain,
                      tls::ProbeServer(options.server.host, options.server.port, kCallTimeout));
  for (const tls::Certificate& shown : chain) {
    if (shown.fingerprint != fingerprint) continue;
    TY_RETURN_IF_ERROR(tls::CheckTimes(options.server.Target(), chain, now));
    rpc::TlsOptions server;
    server.authority = shown.pem;
    for (const std::string& host : chain.front().hosts) {
      if (host == tls::kServerName) server.server_name = host;
    }
    return server;
  }
  return error::CertificateChanged(options.server.Target(), fingerprint,
                                   tls::PinOf(chain).fingerprint);
}

absl::StatusOr<std::string> ReadJoinToken(const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::string token, ReadFile(path, kFileBytesMax));
  absl::StripAsciiWhitespace(&token);
  // A cluster of Kubernetes renews the file, and the server has the cluster verify the token.
  if (!IsPodTokenForm(token)) {
    TY_RETURN_IF_ERROR(Annotate(CheckTokenForm(token, kJoinTokenPrefix), path));
  }
  return token;
}

// Returns the key with which the worker joins, and which is on disk. It is that of an earlier try,
// or a new one.
absl::StatusOr<std::string> ReadOrMakeJoiningKey(const EnrolmentOptions& options) {
  const std::string path = JoiningKeyPath(options);
  if (FileExists(path)) return ReadFile(path, kFileBytesMax);
  std::string key = tls::MakeKey();
  TY_RETURN_IF_ERROR(WriteFileAtomically(path, key, 0600));
  return key;
}

// Remembers that the invitation is of no further use.
absl::Status NoteInvitation(const EnrolmentOptions& options, absl::string_view token) {
  return WriteFileAtomically(InvitationPath(options), absl::BytesToHexString(tls::Sha256(token)),
                             0600);
}

// Keeps what the worker has got by joining. Whenever this is interrupted, the worker can join
// again, because the joining key goes last.
absl::Status KeepJoined(const EnrolmentOptions& options, const rpc::TlsOptions& server,
                        absl::string_view key, absl::string_view certificate) {
  TY_RETURN_IF_ERROR(WriteFileAtomically(AuthorityPath(options), server.authority, 0600));
  TY_RETURN_IF_ERROR(WriteFileAtomically(NamePath(options), server.server_name, 0600));
  TY_RETURN_IF_ERROR(WriteFileAtomically(KeyPath(options), key, 0600));
  TY_RETURN_IF_ERROR(WriteFileAtomically(CertificatePath(options), certificate, 0600));
  TY_RETURN_IF_ERROR(NoteInvitation(options, server.token));
  (void)unlink(JoiningKeyPath(options).c_str());
  return absl::OkStatus();
}

absl::Status Join(const EnrolmentOptions& options, absl::Time now) {
  TY_ASSIGN_OR_RETURN(rpc::TlsOptions server, Recognise(options, now));
  TY_ASSIGN_OR_RETURN(server.token, ReadJoinToken(options.join_token_file));
  TY_ASSIGN_OR_RETURN(const std::string key, ReadOrMakeJoiningKey(options));
  v1::JoinWorkerRequest request;
  request.set_worker(options.worker);
  TY_ASSIGN_OR_RETURN(*request.mutable_certificate_request(),
                      tls::MakeWorkerRequest(key, options.worker));
  TY_ASSIGN_OR_RETURN(const auto channel, rpc::MakeChannel(options.server.ToString(),
                                                           rpc::Keepalive::kNone, {}, server));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kCallTimeout);
  v1::JoinWorkerResponse response;
  const auto stub = v1::AgentService::NewStub(channel);
  TY_RETURN_IF_ERROR(rpc::FromGrpcStatus(stub->JoinWorker(&context, request, &response)));
  TY_RETURN_IF_ERROR(Annotate(tls::CheckKeyPair(response.certificate(), key), "the server"));
  return KeepJoined(options, server, key, response.certificate());
}

// Returns true if the worker was started with an invitation that it has not used. The file of one
// that it has used may be gone.
bool HasNewInvitation(const EnrolmentOptions& options) {
  if (options.join_token_file.empty() || options.fingerprint.empty()) return false;
  const auto token = ReadJoinToken(options.join_token_file);
  const auto used = ReadFile(InvitationPath(options), kFileBytesMax);
  return token.ok() && used.value_or("") != absl::BytesToHexString(tls::Sha256(*token));
}

}  // namespace

absl::StatusOr<rpc::TlsOptions> Enrol(const EnrolmentOptions& options, Clock& clock) {
  TY_RETURN_IF_ERROR(MakeDirectories(options.folder, 0700));
  const auto own = ReadOwn(options, clock.Now());
  if (own.ok() && HasNewInvitation(options)) {
    const absl::Status joined = Join(options, clock.Now());
    if (!joined.ok()) {
      LogWarning("cannot join with the new invitation; the worker keeps its certificate",
                 {{"error", std::string(joined.message())}});
    }
    // An older version has joined with it and has not noted that, or it has ended.
    if (absl::IsUnauthenticated(joined)) {
      TY_ASSIGN_OR_RETURN(const std::string token, ReadJoinToken(options.join_token_file));
      TY_RETURN_IF_ERROR(NoteInvitation(options, token));
    }
  } else if (!own.ok()) {
    if (options.join_token_file.empty() || options.fingerprint.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the worker has no certificate for ", options.server.ToString(), ": ",
          own.status().message(),
          "; run `trainyard workers invite` on the server's host, and give --join_token_file and "
          "--server_fingerprint"));
    }
    TY_RETURN_IF_ERROR(Annotate(Join(options, clock.Now()), "cannot join"));
    LogInfo("joined; the certificate renews itself", {{"worker", options.worker}});
  }
  rpc::TlsOptions proof;
  proof.worker_folder = options.folder;
  TY_ASSIGN_OR_RETURN(proof.server_name, ReadFile(NamePath(options), kFileBytesMax));
  return proof;
}

CertificateRenewer::CertificateRenewer(EnrolmentOptions options,
                                       std::shared_ptr<grpc::Channel> channel, Clock& clock)
    : options_(std::move(options)), channel_(std::move(channel)), clock_(clock) {
  thread_ = std::thread([this] { Run(); });
}

CertificateRenewer::~CertificateRenewer() {
  {
    const MutexLock lock(&mutex_);
    stop_ = true;
  }
  stopped_.SignalAll();
  thread_.join();
}

// Says in the log that a clock is wrong. gRPC only says that it refuses the server's certificate.
void CertificateRenewer::CheckClock() const {
  const auto chain = tls::ProbeServer(options_.server.host, options_.server.port, kProbeTimeout);
  if (!chain.ok()) return;
  const absl::Status times = tls::CheckTimes(options_.server.Target(), *chain, clock_.Now());
  if (!times.ok()) LogWarning(times.message());
}

void CertificateRenewer::Run() {
  while (true) {
    CheckClock();
    const absl::Status renewed = RenewIfDue();
    if (!renewed.ok()) {
      LogWarning("cannot renew the worker's certificate; it is tried again",
                 {{"error", std::string(renewed.message())}});
    }
    const MutexLock lock(&mutex_);
    if (stop_) return;
    stopped_.WaitWithTimeout(&mutex_, kRenewalInterval);
    if (stop_) return;
  }
}

absl::Status CertificateRenewer::RenewIfDue() {
  TY_ASSIGN_OR_RETURN(const tls::Certificate own, ReadOwn(options_, clock_.Now()));
  if (!tls::IsDueForRenewal(own.not_before, own.not_after, clock_.Now())) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const std::string key, ReadFile(KeyPath(options_), kFileBytesMax));
  v1::RenewCertificateRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_certificate_request(),
                      tls::MakeWorkerRequest(key, options_.worker));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kCallTimeout);
  v1::RenewCertificateResponse response;
  const auto stub = v1::AgentService::NewStub(channel_);
  TY_RETURN_IF_ERROR(rpc::FromGrpcStatus(stub->RenewCertificate(&context, request, &response)));
  TY_RETURN_IF_ERROR(tls::CheckKeyPair(response.certificate(), key));
  TY_RETURN_IF_ERROR(WriteFileAtomically(CertificatePath(options_), response.certificate(), 0600));
  LogInfo("the worker's certificate is renewed");
  return absl::OkStatus();
}

}  // namespace trainyard::agent
