// Keeps two indices over all submissions, and updates them when one comes or goes.
#include "server/core/yard/lineage.h"

#include <algorithm>
#include <cstdint>

namespace trainyard::core {
namespace {

void Erase(std::map<JobId, std::set<JobId>>& index, JobId key, JobId id) {
  const auto found = index.find(key);
  if (found == index.end()) return;
  found->second.erase(id);
  if (found->second.empty()) index.erase(found);
}

}  // namespace

int64_t JobsOf(const Submission& submission) {
  return std::max(submission.array_size, 1);
}

void Lineage::Add(JobId id, const Submission& submission) {
  if (submission.cloned_from != JobId{}) clones_[submission.cloned_from].insert(id);
  for (const Dependency& dependency : submission.dependencies) {
    if (dependency.ok) waiting_[dependency.job].insert(id);
  }
}

void Lineage::Remove(JobId id, const Submission& submission) {
  if (submission.cloned_from != JobId{}) Erase(clones_, submission.cloned_from, id);
  for (const Dependency& dependency : submission.dependencies) {
    if (dependency.ok) Erase(waiting_, dependency.job, id);
  }
}

bool Lineage::IsCloned(JobId id, const Submission& submission) const {
  const auto clone = clones_.lower_bound(id);
  return clone != clones_.end() && clone->first.value < id.value + JobsOf(submission);
}

std::set<JobId> Lineage::ClonesOf(JobId job) const {
  const auto found = clones_.find(job);
  return found == clones_.end() ? std::set<JobId>{} : found->second;
}

std::set<JobId> Lineage::WaitingForSuccess(JobId job) const {
  const auto found = waiting_.find(job);
  return found == waiting_.end() ? std::set<JobId>{} : found->second;
}

}  // namespace trainyard::core
