// The seeds of seeds.txt, which were kept because something happens in them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::sim {

struct KeptSeed {
  uint64_t seed = 0;
  std::string bug;  // the planted bug with which it breaks a promise; empty: none
  std::string sentence;
};

// Fails the test that calls it for each line that cannot be read.
std::vector<KeptSeed> KeptSeeds();

}  // namespace trainyard::sim
