// Lets the disk fail under each part of the server's state, and fill up.
#include <gtest/gtest.h>

#include <cerrno>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/faults/report.h"
#include "tests/faults/script.h"
#include "tests/faults/shim.h"

namespace trainyard::testing {
namespace {

// A story makes fewer calls for any part.
constexpr int64_t kCallsMax = 1000;

struct Part {
  const char* name;
  const char* path;
  uint32_t calls;
  int error;
  bool is_short = false;  // the short lane tries it once
};

// Without it, the names of the tests would have addresses in them.
void PrintTo(const Part& part, std::ostream* out) {
  *out << part.name;
}

std::string InjectionOf(const Part& part) {
  std::string calls = (part.calls & kShimSync) != 0 ? "sync" : "write";
  if ((part.calls & kShimRename) != 0) calls = "change of a name";
  return absl::StrCat(part.error == EIO ? "EIO" : "ENOSPC", " at the N-th ", calls, " of `",
                      part.path, "`");
}

class Disk : public ::testing::TestWithParam<Part> {};

TEST_P(Disk, ACallThatFailsLosesNothing) {
  const Part& part = GetParam();
  FaultRow row({.fault = "the server's disk fails at a system call",
                .injection = InjectionOf(part),
                .expectation = "the call is refused, or the server ends and recovers; what was "
                               "acknowledged is there, once; no sync is trusted after it failed"});
  SKIP_WITHOUT_SHIM();
  if (!part.is_short) LONG_LANE_ONLY();
  bool strikes = true;
  for (int64_t n = 0; n < Scaled(1, kCallsMax) && strikes; ++n) {
    SCOPED_TRACE(absl::StrCat("at call ", n));
    Shim shim;
    Script script(shim, row);
    script.Start({.calls = part.calls, .path = part.path, .action = part.error, .passing = n});
    script.Run();
    strikes = shim.Struck() > 0;
    EXPECT_TRUE(strikes || n > 0) << "nothing matches";
    if (!HasFailure()) script.Verify();
    if (HasFailure()) return;
    EXPECT_EQ(shim.Trusted(), 0) << "a sync was trusted after it had failed";
    row.Count("failures", shim.Struck());
    row.Count("refusals", script.refusals());
  }
  row.Survived();
}

INSTANTIATE_TEST_SUITE_P(
    Parts, Disk,
    ::testing::Values(Part{"StateSync", "trainyard.db-wal", kShimSync, EIO, true},
                      Part{"StateWrite", "trainyard.db-wal", kShimWrite, EIO},
                      Part{"StateFull", "trainyard.db-wal", kShimWrite, ENOSPC, true},
                      Part{"MarkWrite", "trainyard.db-committed", kShimWrite, EIO},
                      Part{"MarkFull", "trainyard.db-committed", kShimWrite, ENOSPC},
                      Part{"MetricsWrite", "metrics.db-wal", kShimWrite, EIO},
                      Part{"MetricsFull", "metrics.db-wal", kShimWrite, ENOSPC},
                      Part{"LogSync", "/logs", kShimSync, EIO, true},
                      Part{"LogWrite", "/logs/", kShimWrite, EIO},
                      Part{"LogFull", "/logs/", kShimWrite, ENOSPC},
                      Part{"UploadSync", "/uploads/", kShimSync, EIO},
                      Part{"UploadWrite", "/uploads/", kShimWrite, EIO},
                      Part{"UploadFull", "/uploads/", kShimWrite, ENOSPC},
                      Part{"BlobSync", "/blobs", kShimSync, EIO, true},
                      Part{"BlobName", "/blobs/", kShimRename | kShimCreate, EIO}),
    [](const auto& part) { return part.param.name; });

}  // namespace
}  // namespace trainyard::testing
