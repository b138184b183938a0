// Counts devices and running jobs of arrays against their limits.
#include "server/core/scheduling/quota.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

int32_t HeldBy(const absl::flat_hash_map<std::string, int32_t>& held, const std::string& name) {
  const auto found = held.find(name);
  return found == held.end() ? 0 : found->second;
}

}  // namespace

const QuotaRecord* QuotaFor(const std::map<std::string, QuotaRecord>& quotas,
                            const std::string& class_of_subject, const std::string& name) {
  if (quotas.empty() || (class_of_subject == "project" && name.empty())) return nullptr;
  auto found = quotas.find(absl::StrCat(class_of_subject, ":", name));
  if (found == quotas.end()) found = quotas.find(absl::StrCat(class_of_subject, ":*"));
  return found == quotas.end() ? nullptr : &found->second;
}

void Quotas::Charge(const std::string& user, const std::string& project, int32_t devices) {
  users_[user] += devices;
  projects_[project] += devices;
}

int32_t Quotas::Room(const std::string& user, const std::string& project) const {
  int32_t room = kNoLimit;
  if (quotas_.empty()) return room;
  const QuotaRecord* quota = QuotaFor(quotas_, "user", user);
  if (quota != nullptr && quota->devices > 0) room = quota->devices - HeldBy(users_, user);
  quota = QuotaFor(quotas_, "project", project);
  if (quota != nullptr && quota->devices > 0) {
    room = std::min(room, quota->devices - HeldBy(projects_, project));
  }
  return room;
}

bool Quotas::IsArrayFull(JobId array, int32_t parallel) const {
  if (array == JobId{} || parallel == 0) return false;
  const auto found = arrays_.find(array);
  return found != arrays_.end() && found->second >= parallel;
}

std::vector<std::string> Quotas::WhyNot(const QueuedJob& job, int32_t least) const {
  std::vector<std::string> reasons;
  const auto check = [&](const char* class_of_subject, const std::string& name, int32_t held) {
    const QuotaRecord* quota = QuotaFor(quotas_, class_of_subject, name);
    if (quota == nullptr || quota->devices == 0 || held + least <= quota->devices) return;
    std::string reason = absl::StrCat("needs ", least, least == 1 ? " device" : " devices", "; ",
                                      class_of_subject, " ", name, " holds ", held, " of at most ",
                                      quota->devices, " (quota ", quota->subject, ")");
    if (least > quota->devices) absl::StrAppend(&reason, ": it can never start with this quota");
    reasons.push_back(std::move(reason));
  };
  check("user", job.user, HeldBy(users_, job.user));
  check("project", job.project, HeldBy(projects_, job.project));
  if (IsArrayFull(job.array, job.array_parallel)) {
    reasons.push_back(absl::StrCat(arrays_.at(job.array), " jobs of its array, ",
                                   JobName(job.array), ", hold devices; at most ",
                                   job.array_parallel, " may at a time"));
  }
  return reasons;
}

}  // namespace trainyard::core
