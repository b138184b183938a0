// Adds up, over time, what every user got and what was due to him.
#include "tests/replay/share_meter.h"

#include <algorithm>

namespace trainyard::replay {

int64_t UserShare::served() const {
  return due_us == 0 ? 1000 : std::min<int64_t>(got_us * 1000 / due_us, 1000);
}

ShareMeter::ShareMeter(const Trace& trace) : trace_(trace) {
  std::map<std::string, size_t> index;
  for (const TraceJob& job : trace.jobs) index[job.user] = 0;
  for (auto& [name, place] : index) {
    place = users_.size();
    users_.emplace_back().share.user = name;
  }
  for (const TraceJob& job : trace.jobs) {
    groups_.push_back({index.at(job.user), false, job.size(), 0});
  }
}

void ShareMeter::Open(int64_t trace_job) {
  groups_[static_cast<size_t>(trace_job)].is_open = true;
  Count(trace_job);
}

void ShareMeter::Ended(int64_t trace_job, int64_t count) {
  groups_[static_cast<size_t>(trace_job)].left -= count;
  Count(trace_job);
}

void ShareMeter::Count(int64_t trace_job) {
  Group& group = groups_[static_cast<size_t>(trace_job)];
  const TraceJob& job = trace_.jobs[static_cast<size_t>(trace_job)];
  int64_t at_once = group.is_open ? group.left : 0;
  if (job.array_parallel > 0) at_once = std::min<int64_t>(at_once, job.array_parallel);
  users_[group.user].wants += at_once * job.demand.count - group.wants;
  group.wants = at_once * job.demand.count;
  is_stale_ = true;
}

void ShareMeter::Holds(AttemptId attempt, int64_t trace_job, int64_t devices) {
  int64_t& held = held_[attempt];
  users_[groups_[static_cast<size_t>(trace_job)].user].holds += devices - held;
  held = devices;
  if (devices == 0) held_.erase(attempt);
}

// The one with the smallest demand is served first, and the rest is divided among the others.
void ShareMeter::ShareOut() {
  std::vector<size_t> order;
  for (size_t i = 0; i < users_.size(); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    return users_[a].wants != users_[b].wants ? users_[a].wants < users_[b].wants : a < b;
  });
  due_.assign(users_.size(), 0);
  int64_t left = trace_.devices() * 1000;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto others = static_cast<int64_t>(order.size() - i);
    due_[order[i]] = std::min(users_[order[i]].wants * 1000, left / others);
    left -= due_[order[i]];
  }
  is_stale_ = false;
}

void ShareMeter::AdvanceTo(int64_t uptime_us) {
  const int64_t elapsed = uptime_us - now_us_;
  if (elapsed <= 0) return;
  if (is_stale_) ShareOut();
  for (size_t i = 0; i < users_.size(); ++i) {
    users_[i].share.got_us += users_[i].holds * elapsed;
    users_[i].share.due_us += due_[i] * (elapsed / 1000);
  }
  now_us_ = uptime_us;
}

std::vector<UserShare> ShareMeter::Shares() const {
  std::vector<UserShare> shares;
  for (const User& user : users_) shares.push_back(user.share);
  return shares;
}

}  // namespace trainyard::replay
