// Asks a Kubernetes for pilots, through its API server.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/curl/caller.h"
#include "common/kubernetes/api_client.h"
#include "server/provision/cluster.h"
#include "server/provision/core/inputs.h"
#include "server/provision/core/provider.h"
#include "server/provision/kubernetes/answers.h"
#include "server/provision/kubernetes/manifest.h"
#include "server/provision/kubernetes/pilots.h"

namespace trainyard::provision::kubernetes {

// A cluster under load answers later than a Slurm's controller that is down.
inline constexpr absl::Duration kApiTimeout = absl::Seconds(15);
// A pod has some kilobytes, and ten times that with a long history of who changed it.
inline constexpr int64_t kApiAnswerBytesMax = int64_t{16} << 20;
inline constexpr int kPageSize = 100;
// A list that is longer is none that this server has made.
inline constexpr int kPagesMax = 100;
// A list whose place in the cluster's history is forgotten is begun again.
inline constexpr int kListAttemptsMax = 3;
// So much is tidied up with each list; the rest waits for the next one.
inline constexpr size_t kChoresMax = 50;
// An API server may ask to be left alone for so long at a time.
inline constexpr absl::Duration kQuietMax = absl::Seconds(60);

// The adapter. Without a queue a pilot is as many pods as it has nodes, and with one it is a Job,
// which Kueue lets begin as a whole. Names are made by the server, so that one that is there
// already is ours, and no request makes a second pilot. Each call makes several calls of the API
// server, at most kApiTimeout for each. One thread makes them; it borrows the clock and the flag of
// stopping.
class Kubernetes : public Cluster {
 public:
  Kubernetes(std::string server_id, ProviderSpec spec, ManifestOptions options,
             trainyard::kubernetes::Access access, Clock& clock,
             const std::atomic<bool>& is_stopping, absl::Duration timeout = kApiTimeout);

  // Has the API server check what a pilot would ask for (dryRun=All), and whether we may list.
  // Returns what CheckPod returns, FAILED_PRECONDITION (PROVIDER_REFUSES) with the cluster's
  // reason, or UNAVAILABLE if it cannot be asked.
  absl::Status TryOut() const override;

  // Makes the pods or the Job first, and then the Secret with the tokens, which is owned by them:
  // it is never left behind, and pods wait for it.
  SubmitResult Submit(const std::string& pilot,
                      const std::vector<std::string>& tokens) const override;

  // Lists all that has our labels, and deletes what is of no use any more. Those of `foreign_ids`
  // that were seen to leave are shown once more with the reason of that.
  Listing List(const std::vector<std::string>& foreign_ids) const override;

  // Has the API server check whether the Secret of the pilot could be made (dryRun=All), since the
  // server has no right to read Secrets.
  absl::StatusOr<bool> LacksTokens(const std::string& pilot) const override;

  // Deletes the Job and the pods of a pilot. The foreign id of a pilot is its name.
  absl::Status Cancel(const std::string& foreign_id) const override;

  // Deletes the Secret of a pilot.
  void DropTokens(const std::string& pilot) const override;

 private:
  using Answer = absl::StatusOr<curl::Response>;

  // Says whether an object was made.
  struct Creation {
    SubmitResult::Kind kind = SubmitResult::Kind::kUnknown;
    std::string uid;
    std::string reason;
  };

  Answer Call(const std::string& method, const std::string& path,
              const std::string& body = "") const;
  // Returns why the API server must not be asked now, or "".
  std::string WhyQuiet() const;
  std::string PathOf(bool is_job, const std::string& name = "") const;
  std::string SecretPath(const std::string& name = "") const;
  bool IsPilotOfOurs(const std::string& pilot) const;

  Creation Create(bool is_job, const std::string& name, const std::string& pilot,
                  const std::string& body) const;
  // Looks whether an object that may have been made is there.
  Creation LookFor(bool is_job, const std::string& name, const std::string& pilot,
                   std::string why) const;
  absl::Status CreateSecret(const std::string& pilot, const std::vector<std::string>& tokens,
                            const std::vector<Owner>& owners) const;
  SubmitResult TakeBack(const std::string& pilot, SubmitResult::Kind kind, std::string why) const;
  absl::Status Delete(const Chore& chore) const;
  absl::StatusOr<std::vector<Found>> ListAll(bool is_job, const std::string& selector) const;
  absl::Status TryPost(const std::string& path, const std::string& body) const;

  const std::string server_id_;
  const ProviderSpec spec_;
  const std::string selector_;  // the labels of all pilots of this provider
  const ManifestOptions options_;
  Clock& clock_;
  // These change although calls are const: they do not change what the cluster has.
  mutable trainyard::kubernetes::ApiClient client_;
  mutable absl::Duration quiet_until_ = -absl::InfiniteDuration();
  // The last sights of pilots that leave, by name.
  mutable std::map<std::string, ListedPilot> leaving_;
};

}  // namespace trainyard::provision::kubernetes
