// Remembers since when certificates of workers are refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace trainyard::access {

// A worker whose certificates were revoked.
struct RemovedWorker {
  std::string name;
  // Certificates that are valid from before this time are refused. It is a whole second, as the
  // times in certificates are.
  absl::Time refused_before;

  friend bool operator==(const RemovedWorker&, const RemovedWorker&) = default;
};

// Certificates are compared by the beginning of their validity, so nothing has to be remembered of
// those that were made. A certificate that is made after a removal begins with it, and not a day
// before as others do. The class is thread-safe.
class RemovedWorkers {
 public:
  void Add(const RemovedWorker& worker);
  // Refuses all certificates that the worker has, and returns what has to be stored.
  RemovedWorker Remove(const std::string& name, absl::Time now);

  // Returns CERTIFICATE_REVOKED if a certificate of the worker that is valid from `begin` is
  // refused.
  absl::Status Check(absl::string_view name, absl::Time begin) const;
  // Returns the earliest beginning that a new certificate of the worker may have.
  absl::Time EarliestBegin(absl::string_view name) const;

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, absl::Time> refused_before_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::access
