// Holds what the flags say about pods of a cluster.
#pragma once

#include <string>
#include <vector>

#include "common/kubernetes/api_client.h"
#include "server/kubernetes/accounts.h"

namespace trainyard::kubernetes {

struct Options {
  // Service accounts whose pods may sign in, and those whose pods may be workers. If both are
  // empty, tokens of pods are tokens that nobody knows.
  std::vector<UserRule> users = {};
  std::vector<Account> workers = {};
  // https://HOST:PORT of the API server, or empty outside of a cluster.
  std::string api_url = {};
  std::string access_folder = kAccessFolder;

  bool is_on() const { return !users.empty() || !workers.empty(); }
};

}  // namespace trainyard::kubernetes
