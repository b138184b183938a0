// Gets the certificate of a worker whose server is on another host: joins once with the token of an
// invitation, and renews the certificate in time.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/channel.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::agent {

struct EnrolmentOptions {
  rpc::Address server;
  std::string worker;
  // Key and certificates lie here; only the user of the worker may read them.
  std::string folder;
  // The file of the invitation or of the pod's token, and the fingerprint by which the server is
  // recognised. They are needed until the worker has a certificate, and when it was revoked.
  std::string join_token_file;
  std::string fingerprint;
};

// Returns how the worker proves who it is. If it has no certificate that is valid, or a new
// invitation, it joins first.
// Returns FAILED_PRECONDITION if there is no certificate and no invitation either, the errors of
// JoinWorker, and CERTIFICATE_CHANGED if the server has another fingerprint.
absl::StatusOr<rpc::TlsOptions> Enrol(const EnrolmentOptions& options, Clock& clock);

// Renews the certificate in its folder when two thirds of its life have passed. It owns a thread,
// and borrows the clock.
class CertificateRenewer {
 public:
  CertificateRenewer(EnrolmentOptions options, std::shared_ptr<grpc::Channel> channel,
                     Clock& clock);
  ~CertificateRenewer();

 private:
  void Run();
  absl::Status RenewIfDue();
  void CheckClock() const;

  const EnrolmentOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  Clock& clock_;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::agent
