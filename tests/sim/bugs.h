// The bugs that can be planted (common/base/planted_bug.h), and the proof that the checkers see
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::sim {

struct Bug {
  std::string name;
  std::string sentence;
};

const std::vector<Bug>& Bugs();

// Among so many seeds, from 1 on, one at least sees each bug.
inline constexpr uint64_t kBugSeeds = 200;

struct Catch {
  uint64_t seed = 0;  // the first that saw it; 0: none did
  std::string rule;   // the promise that it broke
};

Catch CatchBug(const std::string& name);

}  // namespace trainyard::sim
