// Limits on what may be held at a time: devices of a user and of a project, jobs of an array.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/core/scheduling/placement.h"

namespace trainyard::core {

// The quota of a subject such as "user:anna" or "project:vision": its own, else that of "user:*" or
// "project:*", else null. Jobs without a project are under no project's quota.
const QuotaRecord* QuotaFor(const std::map<std::string, QuotaRecord>& quotas,
                            const std::string& class_of_subject, const std::string& name);

inline constexpr int32_t kNoLimit = 1 << 30;  // more devices than there are

// Borrows the quotas.
class Quotas {
 public:
  explicit Quotas(const std::map<std::string, QuotaRecord>& quotas) : quotas_(quotas) {}

  // The user holds `devices` more in the project, or fewer if it is negative.
  void Charge(const std::string& user, const std::string& project, int32_t devices);
  void ChargeArray(JobId array) { ++arrays_[array]; }

  // How many more devices the user may have in the project; kNoLimit if nothing limits it.
  int32_t Room(const std::string& user, const std::string& project) const;
  bool IsArrayFull(JobId array, int32_t parallel) const;

  // Sentences that say why a job that needs `least` devices may not have them; empty if it may.
  std::vector<std::string> WhyNot(const QueuedJob& job, int32_t least) const;

 private:
  const std::map<std::string, QuotaRecord>& quotas_;
  absl::flat_hash_map<std::string, int32_t> users_;
  absl::flat_hash_map<std::string, int32_t> projects_;
  std::map<JobId, int32_t> arrays_;
};

}  // namespace trainyard::core
