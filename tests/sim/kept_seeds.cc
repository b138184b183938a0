// Reads seeds.txt: a line is a seed, the name of a bug or "-", and a sentence.
#include "tests/sim/kept_seeds.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/testing/paths.h"

namespace trainyard::sim {

std::vector<KeptSeed> KeptSeeds() {
  std::vector<KeptSeed> kept;
  std::ifstream file(testing::SourcePath("tests/sim/seeds.txt"));
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    KeptSeed one;
    if (words.size() == 3 && absl::SimpleAtoi(words[0], &one.seed)) {
      one.bug = words[1] == "-" ? "" : words[1];
      one.sentence = words[2];
      kept.push_back(one);
    } else {
      ADD_FAILURE() << "seeds.txt: '" << line << "' is not: seed, bug or -, sentence";
    }
  }
  return kept;
}

}  // namespace trainyard::sim
