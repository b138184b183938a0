// Tests that what a server keeps survives the loss of its machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Backup, AYardThatWasLostComesBackFromASnapshot) {
  Yard yard;
  yard.Start();
  const std::string ended = yard.Submit(SmallSpec("ended", 1, 1, 64));
  ASSERT_EQ(yard.WaitForEnd(ended).state(), v1::JOB_STATE_SUCCEEDED);
  const auto curve = yard.Metrics(ended, "train.loss");
  ASSERT_FALSE(curve.empty());
  const std::string running = yard.Submit(SmallSpec("running", 1, 400, 64));
  ASSERT_TRUE(yard.WaitForStep(running, 2));

  // Backups are made while jobs write metrics and checkpoints.
  const std::string folder = yard.File("backups");
  const std::string file = yard.File("backup.tar");
  const std::vector<std::string> state = {"--state-dir", yard.server_state_dir()};
  const auto admin = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "admin");
    words.insert(words.end(), state.begin(), state.end());
    return yard.Cli(words);
  };
  const ProcessResult first = admin({"backup", folder, "--keep", "1"});
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  const ProcessResult packed = admin({"backup", file});
  ASSERT_EQ(packed.exit_code, 0) << packed.out << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("backup.tar: "));
  ASSERT_TRUE(yard.WaitForStep(running, 20));
  const ProcessResult second = admin({"backup", folder, "--keep", "1"});
  ASSERT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, AllOf(HasSubstr(" as in the snapshot before"), HasSubstr("was removed")));
  const std::string snapshot = second.out.substr(0, second.out.find(':'));
  const ProcessResult checked = admin({"check"});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("No damage was found."));
  const ProcessResult whole = yard.Cli({"admin", "check", snapshot});
  EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.out,
              AllOf(HasSubstr("files of the manifest"), HasSubstr("No damage was found.")));

  const ProcessResult used = admin({"restore", snapshot, "--replace"});
  EXPECT_EQ(used.exit_code, 1);
  EXPECT_THAT(used.err, HasSubstr("is in use by process")) << used.err;

  // The machine of the server is lost, with its disk. The worker's one is not.
  yard.KillServer();
  ASSERT_TRUE(RemoveTree(yard.server_state_dir()).ok());
  const ProcessResult restored = admin({"restore", snapshot});
  ASSERT_EQ(restored.exit_code, 0) << restored.out << restored.err;
  EXPECT_THAT(restored.out, HasSubstr("start the server"));
  yard.StartServer();
  EXPECT_EQ(yard.GetJob(ended).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.Metrics(ended, "train.loss").size(), curve.size());
  EXPECT_EQ(yard.Cli({"checkpoints", "verify", "1"}).exit_code, 0);
  // The job that ran meanwhile goes on: the worker tells the restored server of it.
  const int64_t step = yard.GetJob(running).progress().step();
  EXPECT_TRUE(yard.WaitForStep(running, step + 20));
  EXPECT_EQ(yard.GetJob(running).attempt(), 1);
  EXPECT_EQ(yard.Cli({"cancel", "2"}).exit_code, 0);
  EXPECT_EQ(yard.WaitForEnd(running).state(), v1::JOB_STATE_CANCELLED);
  const ProcessResult verified = yard.Cli({"checkpoints", "verify", "2"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;

  // The single file brings back an older state, and the present one is set aside.
  yard.KillServer();
  const ProcessResult older = admin({"restore", file, "--replace"});
  ASSERT_EQ(older.exit_code, 0) << older.out << older.err;
  EXPECT_THAT(older.out, HasSubstr("The old one is in "));
  yard.StartServer();
  EXPECT_EQ(yard.GetJob(ended).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string next = yard.Submit(SmallSpec("next", 1, 1, 64));
  EXPECT_EQ(next, "jobs/3") << "no number is given twice";
  EXPECT_EQ(yard.WaitForEnd(next).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace trainyard::testing
