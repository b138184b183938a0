// Many workers in one process: each is the link of a real one, with a connection of its own, but
// has no devices and runs nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::testing {

// Returns the request for a small job that waits, since these workers have no devices.
v1::CreateJobRequest WaitingJob(const std::string& request_id);

class Crowd {
 public:
  // Starts `count` workers that contact the server at once.
  Crowd(const std::string& address, int count);
  // Ends their links.
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // The workers that have heard the server since this uptime.
  int64_t HeardSince(absl::Duration uptime) const;

 private:
  class Member;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace trainyard::testing
