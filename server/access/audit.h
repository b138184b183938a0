// Defines an entry of the audit log: one call that changed something, or that was refused.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace trainyard::access {

struct AuditRecord {
  int64_t sequence = 0;  // grows by one with each entry; the store gives it
  int64_t time_us = 0;
  std::string user;  // empty if the caller is not known
  std::string real_user;
  std::string address;
  std::string rpc;
  std::string resource;
  bool allowed = false;
  std::string reason;  // why it was refused

  friend bool operator==(const AuditRecord&, const AuditRecord&) = default;
};

// Says which entries are wanted. An empty field stands for all.
struct AuditFilter {
  std::string user = {};  // as `user` or as `real_user`
  std::string resource = {};
  bool only_refused = false;
  int64_t after_us = 0;
  int64_t before_sequence = std::numeric_limits<int64_t>::max();
  int64_t limit = 100;
};

}  // namespace trainyard::access
