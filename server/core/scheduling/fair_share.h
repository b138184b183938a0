// Compares what owners have used with their shares: first between projects, then between the users
// of a project.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/core/lifecycle/records.h"
#include "server/core/scheduling/job_queue.h"

namespace trainyard::core {

// Use divided by weight. Keys are compared exactly, as fractions, so that rounding never decides.
// The smaller key goes first.
struct ShareKey {
  int64_t use = 0;
  int64_t weight = 1;  // > 0

  friend std::weak_ordering operator<=>(const ShareKey& a, const ShareKey& b) {
    return static_cast<__int128>(a.use) * b.weight <=> static_cast<__int128>(b.use) * a.weight;
  }
  friend bool operator==(const ShareKey& a, const ShareKey& b) { return (a <=> b) == 0; }
};

// Computes shares. To the decayed use it adds `advance_us` for each device that is held now, so
// that a burst of placements counts at once and not only after it has run. It borrows the quotas
// for their weights.
class FairShare {
 public:
  FairShare(const std::map<UsageKey, UsageRecord>& usage,
            const std::map<std::string, QuotaRecord>& quotas, int64_t advance_us);

  // Notes that the owner holds this many thousandths of a device more, or fewer if it is negative.
  void Charge(const std::string& user, const std::string& project, int64_t milli_devices);

  ShareKey OfProject(const std::string& project) const;
  ShareKey OfUser(const Owner& owner) const;

 private:
  int64_t WeightOf(const std::string& class_of_subject, const std::string& name) const;

  const std::map<std::string, QuotaRecord>& quotas_;
  const int64_t advance_us_;
  absl::flat_hash_map<std::string, int64_t> projects_;
  absl::flat_hash_map<Owner, int64_t> users_;
};

}  // namespace trainyard::core
