// Keeps one time for each worker that was ever removed.
#include "server/access/removed_workers.h"

#include <algorithm>

#include "common/base/sign_in_errors.h"

namespace trainyard::access {

void RemovedWorkers::Add(const RemovedWorker& worker) {
  const MutexLock lock(&mutex_);
  refused_before_[worker.name] = worker.refused_before;
}

RemovedWorker RemovedWorkers::Remove(const std::string& name, absl::Time now) {
  const MutexLock lock(&mutex_);
  absl::Time& refused_before = refused_before_.emplace(name, absl::InfinitePast()).first->second;
  // A certificate that was made after the last removal begins at that time, and the clock may have
  // been set back since.
  refused_before =
      std::max(absl::FromUnixSeconds(absl::ToUnixSeconds(now)), refused_before + absl::Seconds(1));
  return {name, refused_before};
}

absl::Status RemovedWorkers::Check(absl::string_view name, absl::Time begin) const {
  const absl::Time earliest = EarliestBegin(name);
  if (begin >= earliest) return absl::OkStatus();
  return error::CertificateRevoked(name, earliest);
}

absl::Time RemovedWorkers::EarliestBegin(absl::string_view name) const {
  const MutexLock lock(&mutex_);
  const auto found = refused_before_.find(name);
  return found == refused_before_.end() ? absl::InfinitePast() : found->second;
}

}  // namespace trainyard::access
