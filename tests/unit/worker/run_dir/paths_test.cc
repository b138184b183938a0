#include "worker/run_dir/paths.h"

#include "gtest/gtest.h"

namespace trainyard::run_dir {
namespace {

TEST(Paths, FollowTheDocument) {
  const RunDir dir(AttemptDirectory("/var/lib/trainyard", 12, 1));
  EXPECT_EQ(dir.root(), "/var/lib/trainyard/attempts/12/1");
  EXPECT_EQ(dir.CheckpointRequestPath(), dir.root() + "/control/checkpoint");
  EXPECT_EQ(dir.MetricsPath(3), dir.root() + "/ranks/3/metrics.jsonl");
  EXPECT_EQ(dir.DeviceMetricsPath(3), dir.root() + "/ranks/3/device_metrics.jsonl");
  EXPECT_EQ(dir.RankExitPath(0), dir.root() + "/ranks/0/exit.json");
  EXPECT_EQ(dir.ExitPath(), dir.root() + "/exit.json");
}

TEST(Paths, RelativePathsAreRelativeToTheRunDirectory) {
  const RunDir dir("/run");
  EXPECT_EQ(dir.Resolve("checkpoints/step-3"), "/run/checkpoints/step-3");
  EXPECT_EQ(dir.Resolve("/other"), "/other");
  EXPECT_EQ(dir.Resolve(""), "");
}

TEST(Paths, TemporaryNamesAreKnown) {
  EXPECT_TRUE(IsTemporaryName("progress.json.tmp.4711"));
  EXPECT_FALSE(IsTemporaryName("progress.json"));
  EXPECT_FALSE(IsTemporaryName("a.tmp."));
  EXPECT_FALSE(IsTemporaryName("a.tmp.x"));
}

}  // namespace
}  // namespace trainyard::run_dir
