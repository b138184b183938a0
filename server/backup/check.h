// Looks for damage in a state directory, also while its server runs, or in a snapshot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::backup {

struct Checked {
  std::string what;
  int64_t count = 0;
};

struct CheckResult {
  std::vector<Checked> checked;
  std::vector<std::string> damages;  // each says what is wrong, where, and what to do
};

// Changes nothing. Returns an error only if there is nothing to check.
absl::StatusOr<CheckResult> Check(const std::string& directory);

// Returns the result as people read it, or as JSON.
std::string TableOf(const CheckResult& result);
std::string JsonOf(const CheckResult& result);

}  // namespace trainyard::backup
