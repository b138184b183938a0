// Takes descriptors and memory from the server. It refuses or ends, keeps what it has acknowledged,
// and goes on when it has them again.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/faults/report.h"
#include "tests/faults/script.h"
#include "tests/faults/shim.h"

namespace trainyard::testing {
namespace {

void LimitDescriptors(pid_t pid, rlim_t limit) {
  rlimit limits{};
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &limits), 0);
  limits.rlim_cur = limit;
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &limits, nullptr), 0);
}

rlim_t OpenDescriptors(pid_t pid) {
  return ListDirectory(absl::StrCat("/proc/", pid, "/fd"))->size();
}

TEST(Limits, AServerWithoutDescriptorsRefusesAndHeals) {
  FaultRow row({.fault = "the server's resources are exhausted",
                .injection = "no descriptor can be opened (RLIMIT_NOFILE)",
                .expectation = "streams are refused, the connections that are open go on; with "
                               "descriptors, all goes on by itself"});
  SKIP_WITHOUT_SHIM();
  Shim shim;
  Script script(shim, row);
  script.Start({});
  script.Submit("before the shortage");
  const pid_t pid = script.yard().server()->pid();
  rlimit before{};
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &before), 0);
  LimitDescriptors(pid, OpenDescriptors(pid));
  bool is_short = true;
  script.set_on_refusal([&](const absl::Status& status) {
    EXPECT_TRUE(absl::StrContains(status.message(), "oo many open files")) << status;
    EXPECT_EQ(script.yard().GetJob("jobs/1").name(), "jobs/1") << "the old connection serves";
    if (std::exchange(is_short, false)) LimitDescriptors(pid, before.rlim_cur);
  });
  script.Cancel("jobs/1");
  script.Run();
  EXPECT_FALSE(is_short) << "nothing was refused";
  script.Verify();
  row.Count("refusals", script.refusals());
  if (!HasFailure()) row.Survived();
}

// Returns the size of the process's address space.
rlim_t AddressSpace(pid_t pid) {
  const std::string text = *ReadFile(absl::StrCat("/proc/", pid, "/statm"));
  int64_t pages = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text.substr(0, text.find(' ')), &pages)) << text;
  constexpr rlim_t kPageBytes = 4096;
  return static_cast<rlim_t>(pages) * kPageBytes;
}

TEST(Limits, AServerWithoutMemoryLosesNothing) {
  FaultRow row({.fault = "the server's resources are exhausted",
                .injection = "no memory can be mapped (RLIMIT_AS at what it has, and a few "
                             "hundred KiB more each time)",
                .expectation = "the server refuses, or ends and recovers; what was acknowledged "
                               "is there, once"});
  SKIP_WITHOUT_SHIM();
  constexpr rlim_t kStepBytes = rlim_t{200} << 10;
  for (int round = 0; round < Scaled(1, 30); ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Shim shim;
    Script script(shim, row);
    script.Start({});
    const pid_t pid = script.yard().server()->pid();
    const rlim_t limit = AddressSpace(pid) + static_cast<rlim_t>(round) * kStepBytes;
    const rlimit limits = {limit, limit};
    ASSERT_EQ(prlimit(pid, RLIMIT_AS, &limits, nullptr), 0);
    script.Run();
    const bool has_died = script.yard().server()->pid() != pid;
    script.Verify();
    row.Count("rounds", 1);
    row.Count("ends of the server", has_died ? 1 : 0);
    if (HasFailure()) return;
  }
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
