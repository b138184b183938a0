// Counts devices and running jobs of arrays against their limits.
#include "server/core/scheduling/quota.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

// Returns how many units of `each` fit below the limit beside what is held; 0 is no limit.
int32_t RoomBelow(int64_t limit, int64_t held, int64_t each) {
  if (limit == 0 || each == 0) return kNoLimit;
  return static_cast<int32_t>(
      std::min<int64_t>(std::max<int64_t>(limit - held, 0) / each, kNoLimit));
}

}  // namespace

const QuotaRecord* QuotaFor(const std::map<std::string, QuotaRecord>& quotas,
                            const std::string& class_of_subject, const std::string& name) {
  if (quotas.empty() || (class_of_subject == "project" && name.empty())) return nullptr;
  auto found = quotas.find(absl::StrCat(class_of_subject, ":", name));
  if (found == quotas.end()) found = quotas.find(absl::StrCat(class_of_subject, ":*"));
  return found == quotas.end() ? nullptr : &found->second;
}

Quotas::Held Quotas::HeldBy(const HeldByName& held, const std::string& name) {
  const auto found = held.find(name);
  return found == held.end() ? Held{} : found->second;
}

void Quotas::Charge(const std::string& user, const std::string& project, int32_t devices,
                    const HostAmount& of_hosts) {
  for (Held* held : {&users_[user], &projects_[project]}) {
    held->devices += devices;
    held->of_hosts += of_hosts;
  }
}

int32_t Quotas::Room(const std::string& user, const std::string& project, const HostAmount& need,
                     int32_t devices) const {
  int32_t room = kNoLimit;
  if (quotas_.empty()) return room;
  const auto bound = [&](const QuotaRecord* quota, const Held& held) {
    if (quota == nullptr) return;
    if (quota->devices > 0 && devices > 0) room = std::min(room, quota->devices - held.devices);
    room = std::min(
        {room, RoomBelow(quota->held.cpus, held.of_hosts.cpus, need.cpus),
         RoomBelow(quota->held.memory_bytes, held.of_hosts.memory_bytes, need.memory_bytes)});
  };
  bound(QuotaFor(quotas_, "user", user), HeldBy(users_, user));
  bound(QuotaFor(quotas_, "project", project), HeldBy(projects_, project));
  return room;
}

bool Quotas::IsArrayFull(JobId array, int32_t parallel) const {
  if (array == JobId{} || parallel == 0) return false;
  const auto found = arrays_.find(array);
  return found != arrays_.end() && found->second >= parallel;
}

std::vector<std::string> Quotas::WhyNot(const QueuedJob& job, int32_t least,
                                        const HostAmount& need) const {
  std::vector<std::string> reasons;
  const auto check = [&](const char* class_of_subject, const std::string& name, const Held& held) {
    const QuotaRecord* quota = QuotaFor(quotas_, class_of_subject, name);
    if (quota == nullptr) return;
    const auto add = [&](int64_t wants, int64_t has, int64_t limit, const auto& text) {
      if (wants == 0 || limit == 0 || has + wants <= limit) return;
      std::string reason =
          absl::StrCat("needs ", text(wants), "; ", class_of_subject, " ", name, " holds ", has,
                       " of at most ", limit, " (quota ", quota->subject, ")");
      if (wants > limit) absl::StrAppend(&reason, ": it can never start with this quota");
      reasons.push_back(std::move(reason));
    };
    add(job.demand.is_deviceless ? 0 : least, held.devices, quota->devices,
        [](int64_t count) { return absl::StrCat(count, count == 1 ? " device" : " devices"); });
    add(int64_t{need.cpus} * least, held.of_hosts.cpus, quota->held.cpus,
        [](int64_t count) { return absl::StrCat(count, count == 1 ? " cpu" : " cpus"); });
    add(need.memory_bytes * least, held.of_hosts.memory_bytes, quota->held.memory_bytes,
        [](int64_t bytes) { return absl::StrCat(bytes, " bytes of memory"); });
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
