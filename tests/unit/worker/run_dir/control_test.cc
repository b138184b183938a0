#include "worker/run_dir/control.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/run_dir/test_support.h"

namespace trainyard::run_dir {
namespace {

using ::testing::HasSubstr;

TEST(Lease, WithoutAFileThereIsNoLimit) {
  const testing::TempDir folder;
  const auto lease = ReadLease(RunDir(folder.path()));
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(lease->unlimited());
  EXPECT_FALSE(lease->ExpiredAt(absl::Hours(1'000'000)));
}

TEST(Lease, EndsAtItsTime) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  ASSERT_TRUE(WriteLease(dir, {absl::Seconds(100)}).ok());
  const Lease lease = ReadLease(dir).value();
  EXPECT_FALSE(lease.ExpiredAt(absl::Seconds(99.9)));
  EXPECT_TRUE(lease.ExpiredAt(absl::Seconds(100)));
}

TEST(Lease, DamagedFilesAreRefused) {
  for (const char* text : {"", "\n", "-1\n", "12x\n", "99999999999999999999\n", " 1\n"}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeLease(text, "lease").status())) << text;
  }
}

TEST(Control, ACheckpointRequestIsTheNumberInItsFile) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  EXPECT_EQ(ReadCheckpointRequest(dir).value(), 0);
  ASSERT_TRUE(RequestCheckpoint(dir, 2).ok());
  EXPECT_EQ(ReadFile(dir.CheckpointRequestPath()).value(), "2\n");
  EXPECT_EQ(ReadCheckpointRequest(dir).value(), 2);
  ASSERT_TRUE(RequestCheckpoint(dir, 3).ok());
  EXPECT_EQ(ReadCheckpointRequest(dir).value(), 3);
  ASSERT_TRUE(ReplaceFile(dir.CheckpointRequestPath(), "soon\n").ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadCheckpointRequest(dir).status()));
}

TEST(Control, ALaterStopRequestReplacesTheEarlierOne) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  EXPECT_FALSE(ReadStopRequest(dir)->has_value());
  ASSERT_TRUE(RequestStop(dir, {"drained", absl::Seconds(30)}).ok());
  const StopRequest hurry{"cancelled", absl::Milliseconds(500)};
  ASSERT_TRUE(RequestStop(dir, hurry).ok());
  EXPECT_EQ(**ReadStopRequest(dir), hurry);
}

TEST(Control, AStopForALostDeviceSaysWhoseItIsAndWhatIsWrong) {
  const StopRequest request{kStopDeviceLost, absl::Seconds(5), "Xid 79", 3};
  const auto read = DecodeStopRequest(EncodeStopRequest(request), "control/stop");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, request);
}

TEST(Control, DamagedStopRequestsNameTheField) {
  EXPECT_THAT(std::string(DecodeStopRequest("{}", "control/stop").status().message()),
              HasSubstr("'reason' is missing"));
  EXPECT_THAT(std::string(DecodeStopRequest(R"({"reason": "x", "grace_ms": -1})", "control/stop")
                              .status()
                              .message()),
              HasSubstr("'grace_ms' is -1"));
}

}  // namespace
}  // namespace trainyard::run_dir
