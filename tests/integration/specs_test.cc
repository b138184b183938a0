// Tests the catalogue as its users meet it: a job is saved, run again by its name with changes,
// compared, and stays when the server starts again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Specs, AJobIsSavedAndRunAgainByItsName) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("first", 1, 1, 500));
  ASSERT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const ProcessResult saved =
      yard.Cli({"specs", "save", "1", "baseline", "--note", "before the change", "--tag", "paper"});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_EQ(saved.out, "baseline@1\n");
  EXPECT_THAT(saved.err, HasSubstr("trainyard run baseline@1 runs it again"));

  const ProcessResult again =
      yard.Cli({"run", "baseline", "-q", "--set", "optimizer.sgd.lr=0.02", "--set", "name=second"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const v1::Job second = yard.GetJob("jobs/2");
  EXPECT_EQ(second.provenance().saved_spec(), "specs/baseline/versions/1");
  EXPECT_EQ(second.resolved_spec().name(), "second");
  EXPECT_EQ(second.resolved_spec().optimizer().sgd().lr(), 0.02);
  const v1::Job first = yard.GetJob("jobs/1");
  EXPECT_EQ(second.resolved_spec().data().digest(), first.provenance().data_digest());
  EXPECT_EQ(second.resolved_spec().train().seed(), first.resolved_spec().train().seed());
  EXPECT_THAT(yard.Cli({"show", "2"}).out, HasSubstr("baseline@1"));

  ASSERT_EQ(yard.Cli({"specs", "save", "2", "baseline"}).exit_code, 0);
  yard.KillServer();
  yard.StartServer();
  const std::string list = yard.Cli({"specs", "ls", "baseline"}).out;
  EXPECT_THAT(list, HasSubstr("baseline@2"));
  EXPECT_THAT(list, HasSubstr("convnet"));
  EXPECT_THAT(yard.Cli({"specs", "history", "baseline"}).out, HasSubstr("before the change"));
  const std::string shown = yard.Cli({"specs", "show", "baseline@1"}).out;
  EXPECT_THAT(shown, HasSubstr("# before the change\n# tags: paper\n# of jobs/1, which was "
                               "SUCCEEDED at step "));
  EXPECT_THAT(shown, HasSubstr(" on 1 x cpu\n"));
  EXPECT_THAT(shown, HasSubstr("\nname: first\n"));
  const std::string diff = yard.Cli({"specs", "diff", "baseline@1", "baseline@2"}).out;
  EXPECT_THAT(diff, HasSubstr("optimizer.sgd.lr"));
  EXPECT_THAT(diff, HasSubstr("baseline@2"));
  EXPECT_THAT(diff, Not(HasSubstr("train.seed")));

  // The text that is printed can be submitted as a file.
  const std::string file = yard.File("shown.yaml");
  ASSERT_TRUE(WriteFileAtomically(file, shown).ok());
  EXPECT_EQ(yard.Cli({"submit", file, "--dry-run", "-q"}).exit_code, 0);

  ASSERT_EQ(yard.Cli({"specs", "rm", "baseline@1"}).exit_code, 0);
  const ProcessResult gone = yard.Cli({"run", "baseline@1"});
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_THAT(gone.err, HasSubstr("there is no file 'baseline@1'"));
  EXPECT_THAT(gone.err, HasSubstr("trainyard specs history baseline"));
}

TEST(Specs, PublishedOnesAreThereAndAFileCanBeSavedWithoutARun) {
  Yard yard;
  yard.Start();
  const std::string list = yard.Cli({"specs", "ls", "--tag", "published", "-o", "name"}).out;
  for (const char* name : {"alexnet-imagenet@1", "convnet-glyphs-stages@1", "googlenet-cifar10@1",
                           "gpt2-124m-tokens@1", "resnet50-imagenet@1", "wide-resnet-cifar10@1"}) {
    EXPECT_THAT(list, HasSubstr(absl::StrCat(name, "\n")));
  }
  EXPECT_THAT(yard.Cli({"specs", "show", "wide-resnet-cifar10"}).out, HasSubstr("# Published: "));
  EXPECT_EQ(yard.Cli({"plan", "mlp-glyphs", "-q"}).exit_code, 0);
  EXPECT_THAT(yard.Cli({"run", "mlp-glyhps"}).err, HasSubstr("did you mean mlp-glyphs?"));
  EXPECT_EQ(yard.Cli({"specs", "save", "mlp-glyphs", "mine"}).exit_code, 3) << "it is no job";

  const std::string file = yard.File("own.yaml");
  ASSERT_TRUE(WriteFileAtomically(file, SmallSpec("own", 1, 1, 500)).ok());
  EXPECT_EQ(yard.Cli({"specs", "save", file, "own", "--dry-run"}).exit_code, 0);
  EXPECT_EQ(yard.Cli({"specs", "show", "own"}).exit_code, 3);
  EXPECT_EQ(yard.Cli({"specs", "save", file, "own", "--set", "train.epochs=2"}).exit_code, 0);
  EXPECT_THAT(yard.Cli({"specs", "show", "own"}).out, HasSubstr("epochs: 2"));
  ASSERT_TRUE(WriteFileAtomically(file, "name: own\nmodle: {}\n").ok());
  const ProcessResult wrong = yard.Cli({"specs", "save", file, "own"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'model'?"));
  EXPECT_THAT(wrong.err, HasSubstr("nothing was saved"));
  EXPECT_EQ(yard.Cli({"specs", "save", file, "last"}).exit_code, 2);
}

}  // namespace
}  // namespace trainyard::testing
