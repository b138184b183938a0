// Limits what may be held at a time: devices of a user and of a project, and jobs of an array.
#pragma once

#include <algorithm>
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
  explicit Quotas(const std::map<std::string, QuotaRecord>& quotas)
      : quotas_(quotas),
        has_host_limits_(std::any_of(quotas.begin(), quotas.end(), [](const auto& quota) {
          return !quota.second.held.empty();
        })) {}

  // Notes that the user holds this much more in the project, or less if it is negative.
  void Charge(const std::string& user, const std::string& project, int32_t devices,
              const HostAmount& of_hosts = {});
  // Returns true if a quota limits what is held of hosts.
  bool has_host_limits() const { return has_host_limits_; }
  void ChargeArray(JobId array) { ++arrays_[array]; }

  // Returns how many more ranks the user may have in the project, or kNoLimit if nothing limits
  // them. Each holds `need` of its host and, unless `devices` is 0, one device.
  int32_t Room(const std::string& user, const std::string& project, const HostAmount& need = {},
               int32_t devices = 1) const;
  bool IsArrayFull(JobId array, int32_t parallel) const;

  // Returns sentences that say why a job of at least `least` ranks may not have what they need.
  // There are none if it may.
  std::vector<std::string> WhyNot(const QueuedJob& job, int32_t least,
                                  const HostAmount& need = {}) const;

 private:
  const std::map<std::string, QuotaRecord>& quotas_;
  const bool has_host_limits_;
  struct Held {
    int32_t devices = 0;
    HostAmount of_hosts;
  };
  using HeldByName = absl::flat_hash_map<std::string, Held>;

  static Held HeldBy(const HeldByName& held, const std::string& name);

  HeldByName users_;
  HeldByName projects_;
  std::map<JobId, int32_t> arrays_;
};

}  // namespace trainyard::core
