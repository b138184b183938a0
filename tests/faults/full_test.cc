// Fills the server's disk up with bytes or with files. It refuses what it cannot keep, shows what
// it has, starts again, and works once there is room.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/faults/report.h"
#include "tests/faults/script.h"
#include "tests/faults/shim.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

struct Shortage {
  const char* name;
  const char* injection;
  const char* options;
  void (SmallDisk::*fill)();
};

// Without it, the names of the tests would have addresses in them.
void PrintTo(const Shortage& shortage, std::ostream* out) {
  *out << shortage.name;
}

class Full : public ::testing::TestWithParam<Shortage> {};

TEST_P(Full, DiskRefusesWhatItCannotKeepAndHeals) {
  const Shortage& shortage = GetParam();
  FaultRow row({.fault = "the server's disk is full",
                .injection = shortage.injection,
                .expectation = "new work is refused as `DISK_FULL`; what is there is shown, also "
                               "after a restart; with room, all goes on by itself"});
  SKIP_WITHOUT_SHIM();
  TempDir dir;
  Yard::Options options;
  options.server_state_dir = dir.File("server");
  const auto disk = SmallDisk::Mount(options.server_state_dir, shortage.options);
  if (absl::IsUnavailable(disk.status())) GTEST_SKIP() << disk.status().message();
  ASSERT_TRUE(disk.ok()) << disk.status();
  Shim shim;
  Script script(shim, row, options);
  script.Start({});
  script.Cancel(script.Submit("before the shortage"));
  ((**disk).*shortage.fill)();
  bool is_full = true;
  script.set_on_refusal([&](const absl::Status& status) {
    EXPECT_EQ(ErrorReason(status), "DISK_FULL") << status;
    if (!std::exchange(is_full, false)) return;
    EXPECT_EQ(script.yard().GetJob("jobs/1").name(), "jobs/1");
    script.Restart();
    EXPECT_EQ(script.yard().GetJob("jobs/1").name(), "jobs/1");
    (*disk)->Free();
  });
  script.Run();
  EXPECT_FALSE(is_full) << "nothing was refused";
  EXPECT_FALSE(shim.Struck());
  script.Verify();
  row.Count("refusals", script.refusals());
  if (!HasFailure()) row.Survived();
}

INSTANTIATE_TEST_SUITE_P(Shortages, Full,
                         ::testing::Values(Shortage{"Space", "no space on a file system of 4 MiB",
                                                    "size=4m", &SmallDisk::FillSpace},
                                           Shortage{"Inodes", "no inodes on a file system of 100",
                                                    "nr_inodes=100", &SmallDisk::FillInodes}),
                         [](const auto& shortage) { return shortage.param.name; });

}  // namespace
}  // namespace trainyard::testing
