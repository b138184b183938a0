// The bugs that can be planted: each is a patch of the sources that ship, bugs/<name>.patch, and
// together they prove that the checkers see what they are there for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::sim {

struct Bug {
  std::string name;
  std::string sentence;  // from the first line of its patch
};

// The bugs that this program was built with, by name. Only those that are linked with the patched
// sources have any: sim_planted and planted_test.
const std::vector<Bug>& Bugs();

// At least one of the seeds from 1 to this number sees each bug.
inline constexpr uint64_t kBugSeeds = 200;

struct Catch {
  uint64_t seed = 0;  // the first seed that saw it; 0: none did
  std::string rule;   // the promise that it broke
};

Catch CatchBug(const std::string& name);

}  // namespace trainyard::sim
