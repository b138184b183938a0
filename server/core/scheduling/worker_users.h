// Says whose jobs a worker runs. A worker that is root runs those of all users who have an account
// on its host; any other one runs those of its own user.
#pragma once

#include <compare>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::core {

struct WorkerUsers {
  std::string only = {};  // the only user whose jobs it runs; empty means those of everybody
  // The users whose jobs it cannot run, and why: "this host has no account 'anna'".
  std::map<std::string, std::string> refused = {};

  bool empty() const { return only.empty() && refused.empty(); }
  bool Allow(absl::string_view user) const {
    return (only.empty() || only == user) && !refused.contains(std::string(user));
  }

  friend auto operator<=>(const WorkerUsers&, const WorkerUsers&) = default;
};

// Returns why the worker does not run jobs of `user`: "worker w1 runs jobs of anna only".
std::string WhyNotFor(absl::string_view user, absl::string_view worker, const WorkerUsers& users);

}  // namespace trainyard::core
