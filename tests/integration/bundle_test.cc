// Tests that a job goes from one server to another as a file, and is there what it was here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Bundle : public ::testing::Test {
 protected:
  void SetUp() override {
    here_.Start();
    there_.Start();
  }
  // Exports a job from here, and returns the path of the file.
  std::string Export(const std::string& job, std::vector<std::string> flags = {}) {
    const std::string path = here_.File(absl::StrCat("job-", job, ".trainyard"));
    flags.insert(flags.begin(), {"export", job, "-O", path});
    const ProcessResult result = here_.Cli(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, path + "\n");
    return path;
  }

  Yard here_;
  Yard there_;
};

TEST_F(Bundle, AJobGoesToAnotherServerAndOnFromThere) {
  const std::string job = here_.Submit(SmallSpec("travels", 1, 2, 256));
  ASSERT_EQ(here_.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::Job before = here_.GetJob(job);
  const std::string bundle = Export("1", {"--checkpoint", "all", "--logs"});
  EXPECT_NE(here_.Cli({"export", "1", "-O", bundle}).exit_code, 0) << "nothing is overwritten";

  // The server goes away in the middle: what a broken import has left is completed by the next one.
  there_.Submit(SmallSpec("first", 1, 1, 64));
  const std::string whole = *ReadFile(bundle);
  const std::string cut = there_.File("cut.trainyard");
  ASSERT_TRUE(ReplaceFile(cut, whole.substr(0, whole.size() / 2)).ok());
  const ProcessResult broken = there_.Cli({"import", cut});
  EXPECT_NE(broken.exit_code, 0);
  EXPECT_THAT(broken.err,
              AllOf(HasSubstr("jobs/2 is there and not complete"), HasSubstr("cut off")));
  const ProcessResult imported = there_.Cli({"import", bundle});
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_EQ(imported.out, "jobs/2\n") << "it is the same job";
  EXPECT_EQ(there_.Cli({"import", bundle}).out, "jobs/2\n");

  const auto curve = [](Yard& yard, const std::string& name) {
    std::vector<std::pair<int64_t, double>> points;
    for (const v1::MetricPoint& point : yard.Metrics(name, "train.loss")) {
      points.emplace_back(point.step(), point.value());
    }
    return points;
  };
  EXPECT_FALSE(curve(here_, job).empty());
  EXPECT_EQ(curve(there_, "jobs/2"), curve(here_, job));
  const v1::Job after = there_.GetJob("jobs/2");
  EXPECT_EQ(after.resolved_spec().SerializeAsString(), before.resolved_spec().SerializeAsString());
  EXPECT_EQ(after.progress().checkpoint_step(), before.progress().checkpoint_step());
  EXPECT_THAT(there_.Cli({"show", "2", "--events"}).out,
              AllOf(HasSubstr("jobs/1 of "), HasSubstr("imported"), HasSubstr("JOB_SUCCEEDED"),
                    HasSubstr("JOB_IMPORTED")));
  const std::string fetched = there_.File("fetched");
  EXPECT_EQ(there_.Cli({"checkpoints", "get", "2", "-O", fetched}).exit_code, 0);
  EXPECT_TRUE(FileExists(JoinPath(fetched, "model.safetensors")));

  // It survives a restart, is cloned, and continued from its checkpoint.
  there_.KillServer();
  there_.StartServer();
  const ProcessResult clone =
      there_.Cli({"clone", "2", "-y", "--from", "2", "--set", "train.epochs=3", "--follow"});
  EXPECT_EQ(clone.exit_code, 0) << clone.err;
  EXPECT_GT(there_.GetJob("jobs/3").progress().step(), before.progress().step());
  EXPECT_THAT(there_.Cli({"diff", "2", "3"}).out, HasSubstr("train.epochs"));

  // The file is a spec as well.
  const ProcessResult run =
      there_.Cli({"run", bundle, "--set", "train.epochs=1", "--name", "again"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(there_.GetJob("jobs/4").resolved_spec().data().digest(),
            before.provenance().data_digest());
  EXPECT_THAT(there_.Cli({"submit", "--dry-run", bundle}).out, HasSubstr("name: travels"));
}

TEST_F(Bundle, AProgramTakesItsCodeAlong) {
  std::filesystem::create_directories(here_.File("project"));
  ASSERT_TRUE(ReplaceFile(here_.File("project/main.sh"), "echo from afar\n").ok());
  ASSERT_TRUE(ReplaceFile(here_.File("project/job.yaml"),
                          "name: carried\ndevices: 1\nprogram:\n  code: .\n"
                          "  command: [sh, main.sh]\n")
                  .ok());
  const ProcessResult first = here_.Cli({"run", here_.File("project/job.yaml")});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string bundle = Export("1");
  const ProcessResult run = there_.Cli({"run", bundle});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "from afar\n");
  EXPECT_EQ(there_.Cli({"import", bundle}).out, "jobs/2\n");
  const ProcessResult clone = there_.Cli({"clone", "2", "-y", "--follow"});
  EXPECT_EQ(clone.out, "from afar\n") << clone.err;
  EXPECT_EQ(there_.Cli({"code", "cat", "2", "main.sh"}).out, "echo from afar\n");

  // Through a pipe, and from the server of a context.
  const ProcessResult piped = here_.Cli({"export", "1", "-O", "-"});
  const std::string copy = there_.File("copy.trainyard");
  ASSERT_TRUE(ReplaceFile(copy, piped.out).ok());
  EXPECT_EQ(there_.Cli({"import", copy}).out, "jobs/2\n") << "the same content is the same job";
  EXPECT_EQ(there_.Cli({"contexts", "add", "near", here_.address()}).exit_code, 0);
  const ProcessResult remote = there_.Cli({"run", "near:jobs/1"});
  EXPECT_EQ(remote.out, "from afar\n") << remote.err;

  const ProcessResult refused = there_.Cli({"import", here_.File("project/main.sh")});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("it is no bundle"));
}

}  // namespace
}  // namespace trainyard::testing
