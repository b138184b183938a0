// Adds up use, and divides it by weights.
#include "server/core/scheduling/fair_share.h"

#include "server/core/scheduling/quota.h"

namespace trainyard::core {

FairShare::FairShare(const std::map<UsageKey, UsageRecord>& usage,
                     const std::map<std::string, QuotaRecord>& quotas, int64_t advance_us)
    : quotas_(quotas), advance_us_(advance_us) {
  for (const auto& [key, record] : usage) {
    projects_[key.first] += record.device_us;
    users_[key] += record.device_us;
  }
}

void FairShare::Charge(const std::string& user, const std::string& project, int64_t milli_devices) {
  const int64_t advance_us = milli_devices * advance_us_ / 1000;
  projects_[project] += advance_us;
  users_[{project, user}] += advance_us;
}

ShareKey FairShare::OfProject(const std::string& project) const {
  const auto found = projects_.find(project);
  return {found == projects_.end() ? 0 : found->second, WeightOf("project", project)};
}

ShareKey FairShare::OfUser(const Owner& owner) const {
  const auto found = users_.find(owner);
  return {found == users_.end() ? 0 : found->second, WeightOf("user", owner.second)};
}

int64_t FairShare::WeightOf(const std::string& class_of_subject, const std::string& name) const {
  const QuotaRecord* quota = QuotaFor(quotas_, class_of_subject, name);
  return quota == nullptr || quota->weight <= 0 ? 1 : quota->weight;
}

}  // namespace trainyard::core
