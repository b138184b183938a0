// Runs the simulator from the command line:
//   sim --seed N --trace                 the story of one seed
//   sim --seeds A..B, sim --hours H      many seeds, each twice
// The same program with planted bugs (sim_planted) also has
//   --bug NAME --seeds A..B              with a bug
//   --list-bugs, --catch-bugs            the bugs; the seed and the promise that catch each
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/sim/bugs.h"
#include "tests/sim/simulation.h"

namespace trainyard::sim {
namespace {

struct Flags {
  uint64_t first = 1;
  uint64_t last = 0;  // 0: no end
  double hours = 0;   // 0: no limit
  bool trace = false;
  bool once = false;
  bool list_bugs = false;
  bool catch_bugs = false;
  std::string bug;
};

bool IsBug(const std::string& name) {
  return std::any_of(Bugs().begin(), Bugs().end(),
                     [&name](const Bug& bug) { return bug.name == name; });
}

bool Parse(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--trace") {
      flags.trace = true;
    } else if (flag == "--once") {
      flags.once = true;
    } else if (flag == "--list-bugs") {
      flags.list_bugs = true;
    } else if (flag == "--catch-bugs") {
      flags.catch_bugs = true;
    } else if (flag == "--bug") {
      flags.bug = value;
      ++i;
    } else if (flag == "--hours") {
      if (!absl::SimpleAtod(value, &flags.hours)) return false;
      ++i;
    } else if (flag == "--from" || flag == "--seed") {
      if (!absl::SimpleAtoi(value, &flags.first)) return false;
      if (flag == "--seed") flags.last = flags.first;
      ++i;
    } else if (flag == "--seeds") {
      const std::vector<std::string> ends = absl::StrSplit(value, "..");
      if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &flags.first) ||
          !absl::SimpleAtoi(ends[1], &flags.last)) {
        return false;
      }
      ++i;
    } else {
      return false;
    }
  }
  if (!flags.bug.empty() && !IsBug(flags.bug)) {
    std::fprintf(stderr, "no bug '%s' is planted in this program; sim_planted --list-bugs\n",
                 flags.bug.c_str());
    return false;
  }
  return flags.last != 0 || flags.hours > 0 || flags.list_bugs || flags.catch_bugs;
}

int Run(const Flags& flags) {
  double hours = 0;
  int64_t broken = 0;
  uint64_t seed = flags.first;
  for (; (flags.last == 0 || seed <= flags.last) && (flags.hours == 0 || hours < flags.hours);
       ++seed) {
    const bool once = flags.trace || flags.once || !flags.bug.empty();
    const Result result = once ? Simulate(seed, flags.bug, flags.trace) : SimulateTwice(seed);
    hours += static_cast<double>(result.hours_us) / 3.6e9;
    if (!result.is_broken) continue;
    ++broken;
    absl::PrintF("seed %d broke a promise: %s: %s\n", seed, result.rule, result.what);
    std::fflush(stdout);
  }
  absl::PrintF("%d seeds, %.1f pool-hours, %d broken\n", seed - flags.first, hours, broken);
  return broken == 0 ? 0 : 1;
}

int ListBugs() {
  for (const Bug& bug : Bugs()) absl::PrintF("%-26s %s\n", bug.name, bug.sentence);
  return 0;
}

int CatchBugs() {
  int missed = 0;
  absl::PrintF("%-26s %-5s %s\n", "bug", "seeds", "caught by");
  for (const Bug& bug : Bugs()) {
    const Catch caught = CatchBug(bug.name);
    if (caught.seed == 0) ++missed;
    absl::PrintF("%-26s %5d %s\n", bug.name, caught.seed,
                 caught.seed == 0 ? "nothing" : caught.rule);
    std::fflush(stdout);
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::sim

int main(int argc, char** argv) {
  trainyard::sim::Flags flags;
  if (!trainyard::sim::Parse(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: sim --seed N [--trace] | --seeds A..B | --hours H [--from N] |\n"
                 "           --bug NAME --seeds A..B | --list-bugs | --catch-bugs   (--once: do "
                 "not run twice)\n");
    return 2;
  }
  if (flags.list_bugs) return trainyard::sim::ListBugs();
  if (flags.catch_bugs) return trainyard::sim::CatchBugs();
  return trainyard::sim::Run(flags);
}
