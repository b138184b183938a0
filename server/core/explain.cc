#include "server/core/explain.h"

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

// Sentences stay readable on a busy pool.
constexpr size_t kHoldersNamed = 5;

std::string Devices(int32_t count, const std::string& type) {
  return absl::StrCat(count, count == 1 ? " device" : " devices",
                      type.empty() ? "" : absl::StrCat(" of type ", type));
}

std::string Holders(const std::map<JobId, int32_t>& held) {
  std::string text;
  size_t named = 0;
  int32_t rest = 0;
  for (const auto& [job, count] : held) {
    if (named < kHoldersNamed) {
      absl::StrAppend(&text, named == 0 ? "" : ", ", JobName(job), " holds ", count);
      ++named;
    } else {
      rest += count;
    }
  }
  if (rest > 0) absl::StrAppend(&text, ", ", held.size() - named, " more jobs hold ", rest);
  return text;
}

}  // namespace

PoolSummary::PoolSummary(const Pool& pool) : has_workers_(!pool.empty()) {
  for (const PoolWorker& worker : pool) {
    for (const PoolDevice& device : worker.devices) {
      for (Count* count : {&by_type_[device.type], &all_}) {
        ++count->total;
        if (device.holder != JobId{}) {
          ++count->held[device.holder];
        } else if (!worker.takes_ranks) {
          ++count->set_aside[absl::StrCat("worker ", worker.name, " ", worker.why_not)];
        } else if (!device.usable) {
          ++count->set_aside[absl::StrCat("device ", device.name, " of worker ", worker.name, " ",
                                          device.why_not)];
        } else {
          ++count->free;
        }
      }
    }
  }
}

const PoolSummary::Count& PoolSummary::For(const Demand& demand) const {
  static const Count kNothing;
  if (!demand.type.empty()) {
    const auto found = by_type_.find(demand.type);
    return found == by_type_.end() ? kNothing : found->second;
  }
  if (demand.mixed) return all_;
  const Count* most = &kNothing;
  for (const auto& [type, count] : by_type_) {
    if (count.total > most->total) most = &count;
  }
  return *most;
}

int32_t PoolSummary::Capacity(const Demand& demand) const {
  return For(demand).total;
}

std::vector<std::string> PoolSummary::WhyNot(const Demand& demand) const {
  const std::string needs = absl::StrCat("needs ", Devices(demand.count, demand.type));
  if (!has_workers_) return {needs, "no worker has registered"};
  const Count& count = For(demand);
  if (count.total < demand.count) {
    const std::string one_type =
        demand.type.empty() && !demand.mixed && by_type_.size() > 1 ? " of one type" : "";
    return {
        absl::StrCat(needs, one_type, "; the pool has ", count.total, ": it can never start here")};
  }
  std::string sentence = absl::StrCat(needs, "; ", count.free, " of ", count.total,
                                      count.free == 1 ? " is free" : " are free");
  if (!count.held.empty()) absl::StrAppend(&sentence, " (", Holders(count.held), ")");
  std::vector<std::string> reasons = {sentence};
  for (const auto& [what, devices] : count.set_aside) {
    reasons.push_back(absl::StrCat(what, " (", Devices(devices, ""), ")"));
  }
  return reasons;
}

std::string AheadInQueue(JobId job) {
  return absl::StrCat("job ", JobName(job), " is ahead in the queue");
}

}  // namespace trainyard::core
