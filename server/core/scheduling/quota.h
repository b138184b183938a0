// Limits what may be held at a time: devices of a user and of a project, and jobs of an array.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/core/scheduling/placement.h"

namespace trainyard::core {

// Returns the quota of a subject such as "user:anna" or "project:vision": its own, else that of
// "user:*" or "project:*", else null. Jobs without a project are under no project's quota.
const QuotaRecord* QuotaFor(const std::map<std::string, QuotaRecord>& quotas,
                            const std::string& class_of_subject, const std::string& name);

inline constexpr int32_t kNoLimit = 1 << 30;  // more devices than exist

// Counts what is held against quotas. It borrows the quotas.
class Quotas {
 public:
  explicit Quotas(const std::map<std::string, QuotaRecord>& quotas) : quotas_(quotas) {}

  // Notes that the user holds `devices` more in the project, or fewer if it is negative.
  void Charge(const std::string& user, const std::string& project, int32_t devices);
  void ChargeArray(JobId array) { ++arrays_[array]; }

  // Returns how many more devices the user may have in the project, or kNoLimit if nothing limits
  // it.
  int32_t Room(const std::string& user, const std::string& project) const;
  bool IsArrayFull(JobId array, int32_t parallel) const;

  // Returns sentences that say why a job that needs `least` devices may not have them. There are
  // none if it may.
  std::vector<std::string> WhyNot(const QueuedJob& job, int32_t least) const;

 private:
  const std::map<std::string, QuotaRecord>& quotas_;
  absl::flat_hash_map<std::string, int32_t> users_;
  absl::flat_hash_map<std::string, int32_t> projects_;
  std::map<JobId, int32_t> arrays_;
};

}  // namespace trainyard::core
