// Keeps the certificates of a server: makes them at the first start, renews them, and notices when
// somebody replaces them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/file_watch.h"
#include "common/base/mutex.h"
#include "common/tls/certificate.h"
#include "common/tls/issue.h"
#include "server/tls/context.h"

namespace trainyard::tls {

struct CertificateOptions {
  // The server's own files lie here: authority.key, authority.pem, server.key, server.pem, and
  // `fingerprint` for people. Keys are readable by the server's user alone.
  std::string folder = {};
  // Names and addresses in the server's own certificate, besides those of this host.
  std::vector<std::string> names = {};
  // The site's files. If `certificate` is empty, the server shows its own certificate.
  std::string certificate = {};
  std::string key = {};
  // Further authorities whose certificates workers may show.
  std::string client_authorities = {};
};

// Only one thread calls Refresh. The others may be called by any thread.
class CertificateFiles {
 public:
  // Makes what is missing and reads the rest. Returns the errors of files, and INVALID_ARGUMENT for
  // files that are damaged, with the path.
  static absl::StatusOr<std::unique_ptr<CertificateFiles>> Open(CertificateOptions options,
                                                                Clock& clock);

  // Returns a descriptor that is readable when files have changed, or -1 if none can be watched.
  int fd() const { return watch_.has_value() ? watch_->fd() : -1; }
  // Reads files that have changed, and renews the server's own certificate in time. A set of files
  // that does not fit together is not taken: the old one stays, and the log says why. Call it when
  // fd() is readable, and now and then.
  void Refresh();
  // Returns what new connections use.
  SharedContext context() const;

  // Returns the certificate that clients pin.
  Certificate pin() const;
  // Returns the names and addresses in the certificate that new connections get.
  std::vector<std::string> hosts() const;
  // Answers the request of a worker with a certificate of the server's own authority, which is not
  // valid before `earliest_begin`.
  absl::StatusOr<Certificate> SignWorker(absl::string_view request, absl::string_view worker,
                                         absl::Time earliest_begin = absl::InfinitePast()) const;

 private:
  CertificateFiles(CertificateOptions options, Clock& clock);

  std::string Path(absl::string_view name) const;
  absl::Status OpenAuthority();
  // Makes a new certificate of the server if there is none, or it is old, or lacks a name.
  absl::Status RenewOwn();
  absl::StatusOr<ServerMaterial> Read() const;
  absl::Status Load();
  void Watch();
  void TellChange(const std::vector<Certificate>& chain) const;
  void WarnOfEnd(const Certificate& certificate);

  const CertificateOptions options_;
  Clock& clock_;
  KeyPair authority_;
  mutable Mutex mutex_;
  Certificate pin_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> hosts_ ABSL_GUARDED_BY(mutex_);
  SharedContext context_ ABSL_GUARDED_BY(mutex_);
  ServerMaterial material_;
  std::optional<FileWatch> watch_;
  std::optional<absl::Time> warned_of_;  // the end of the certificate that was warned of
};

}  // namespace trainyard::tls
