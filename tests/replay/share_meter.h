// Measures the share of the pool that every user got, and the share that was due to the user.
//
// Due, at each moment: an equal share of all devices, but no more than he has asked for by then;
// what some do not want is shared equally among the others (max-min fairness). Quotas and weights
// are left out of it, and so are jobs that may not start yet.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/core/lifecycle/records.h"
#include "tests/replay/trace.h"

namespace trainyard::replay {

struct UserShare {
  std::string user;
  int64_t got_us = 0;  // device time held
  int64_t due_us = 0;

  // In thousandths, at most 1,000: a user who gets more than is due takes it from devices that
  // others leave.
  int64_t served() const;

  friend bool operator==(const UserShare&, const UserShare&) = default;
};

// Borrows the trace. Tell it of everything that happens at a moment, then move on.
class ShareMeter {
 public:
  explicit ShareMeter(const Trace& trace);

  // The job, all of its array, may start from now on.
  void Open(int64_t trace_job);
  // Records that `count` of its jobs have ended for good.
  void Ended(int64_t trace_job, int64_t count);
  // Notes that an attempt holds this many devices now. 0 means that it has ended.
  void Holds(AttemptId attempt, int64_t trace_job, int64_t devices);
  void AdvanceTo(int64_t uptime_us);

  std::vector<UserShare> Shares() const;  // by user

 private:
  struct User {
    int64_t wants = 0;
    int64_t holds = 0;
    UserShare share;
  };
  struct Group {
    size_t user = 0;
    bool is_open = false;
    int64_t left = 0;
    int64_t wants = 0;
  };

  void Count(int64_t trace_job);
  void ShareOut();

  const Trace& trace_;
  std::vector<User> users_;
  std::vector<Group> groups_;  // by trace job
  std::map<AttemptId, int64_t> held_;
  bool is_stale_ = true;
  std::vector<int64_t> due_;  // of each user now, in thousandths of a device
  int64_t now_us_ = 0;
};

}  // namespace trainyard::replay
