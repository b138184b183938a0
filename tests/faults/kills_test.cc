// Kills the server at every system call of a story of submissions, a placement, streams, a
// checkpoint, a finish and cancellations, and again while it recovers from that.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/faults/report.h"
#include "tests/faults/script.h"
#include "tests/faults/shim.h"

namespace trainyard::testing {
namespace {

constexpr char kExpectation[] =
    "what was acknowledged is there, once; no number is left out; `integrity_check` is ok";
// The whole story needs fewer calls of any kind.
constexpr int64_t kCallsMax = 5000;

// Tells one story with the fault. Returns false if the fault came to nothing.
bool TellWith(const Shim::Fault& fault, const Shim::Fault* recovery, FaultRow& row) {
  Shim shim;
  Script script(shim, row);
  if (recovery != nullptr) script.set_recovery_fault(*recovery);
  script.Start(fault);
  script.Run();
  const int64_t struck = shim.Struck();
  if (!::testing::Test::HasFailure()) script.Verify();
  row.Count("kills", struck);
  return struck > 0;
}

struct Place {
  const char* name;
  const char* injection;
  uint32_t calls;
  const char* path;
  int32_t action;
  int64_t sample;  // the number of the call that the short lane takes
};

// Without it, the names of the tests would have addresses in them.
void PrintTo(const Place& place, std::ostream* out) {
  *out << place.name;
}

class Kills : public ::testing::TestWithParam<Place> {};

TEST_P(Kills, AtACallLoseNothing) {
  const Place& place = GetParam();
  FaultRow row({.fault = "SIGKILL of the server at a system call",
                .injection = place.injection,
                .expectation = kExpectation});
  SKIP_WITHOUT_SHIM();
  Shim::Fault fault = {.calls = place.calls, .path = place.path, .action = place.action};
  const int64_t first = IsLongLane() ? 0 : place.sample;
  const int64_t end = IsLongLane() ? kCallsMax : first + 1;
  bool strikes = true;
  for (int64_t n = first; n < end && strikes; ++n) {
    SCOPED_TRACE(absl::StrCat("at call ", n));
    fault.passing = n;
    strikes = TellWith(fault, nullptr, row);
    EXPECT_TRUE(strikes || n > first) << "the story has no such call";
    if (HasFailure()) return;
  }
  row.Survived();
}

INSTANTIATE_TEST_SUITE_P(
    Calls, Kills,
    ::testing::Values(Place{"Sync", "before the N-th fsync or fdatasync", kShimSync, "/server",
                            kShimKill, 5},
                      Place{"Write", "before the N-th write or truncation", kShimWrite | kShimCut,
                            "/server/", kShimKill, 40},
                      Place{"HalfWrite", "in the middle of the N-th write", kShimWrite, "/server/",
                            kShimKillHalf, 60},
                      Place{"Name", "before the N-th rename, unlink, mkdir or creation of a file",
                            kShimRename | kShimUnlink | kShimCreate, "/server/", kShimKill, 3},
                      Place{"Send", "before the N-th send", kShimSend, "socket:", kShimKill, 10},
                      Place{"HalfSend", "in the middle of the N-th send", kShimSend,
                            "socket:", kShimKillHalf, 12}),
    [](const auto& place) { return place.param.name; });

TEST(KillsInRecovery, LoseNothing) {
  FaultRow row({.fault = "SIGKILL of the server at a system call",
                .injection = "at the N-th write, sync or change of a name, and again at the M-th "
                             "of the start that follows",
                .expectation = kExpectation});
  SKIP_WITHOUT_SHIM();
  constexpr uint32_t kFileCalls =
      kShimSync | kShimWrite | kShimCut | kShimRename | kShimUnlink | kShimCreate;
  Shim::Fault fault = {.calls = kFileCalls, .path = "/server"};
  Shim::Fault recovery = {.calls = kFileCalls, .path = "/server"};
  // A story makes at least so many calls, and a start some ten.
  constexpr int64_t kStoryCalls = 200;
  constexpr int64_t kStartCalls = 20;
  const int64_t rounds = Scaled(1, 300);
  for (int64_t round = 0; round < rounds; ++round) {
    fault.passing = (2 * round + 1) * kStoryCalls / (2 * rounds);
    recovery.passing = (round * 7 + 3) % kStartCalls;
    SCOPED_TRACE(absl::StrCat("at call ", fault.passing, " and ", recovery.passing));
    TellWith(fault, &recovery, row);
    if (HasFailure()) return;
  }
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
