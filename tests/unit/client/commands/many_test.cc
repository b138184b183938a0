// Tests the submission of many specs over one stream, and the flags that go with a spec on the
// command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/submit_options.h"
#include "common/base/errors.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Document(const std::string& name) {
  return absl::StrCat("---\nname: ", name,
                      "\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
                      "optimizer: {sgd: {lr: 0.1}}\n");
}

class Many : public ::testing::Test {
 protected:
  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(Many, EveryDocumentOfEveryFileIsSubmittedInOrder) {
  const std::string first = runner_.home.Write("a.yaml", Document("one") + Document("two"));
  const std::string second = runner_.home.Write("b.yaml", Document("three"));
  const CommandResult result = runner_.Run({"submit", "-f", first, "-f", second});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jobs/1\njobs/2\njobs/3\n");
  EXPECT_THAT(result.err, HasSubstr("submitted 3 of 3 documents"));
  EXPECT_THAT(runner_.Run({"show", "3"}).out, HasSubstr("jobs/3  three"));
}

TEST_F(Many, WhatIsWrongIsToldWithItsFileAndLineAndKeepsNothingElseBack) {
  server_.RefuseItems("two", InvalidFields({{"spec.optimizer.sgd.lr", "is too bold"}}));
  server_.RefuseItems("five", absl::ResourceExhaustedError("over the quota"));
  const std::string file =
      runner_.home.Write("many.yaml", Document("one") + Document("two") + Document("three") +
                                          "colour: red\n" + Document("four") + Document("five"));
  const CommandResult result = runner_.Run({"submit", "-f", file});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "jobs/1\njobs/2\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("many.yaml:12:23: optimizer.sgd.lr: is too bold"),
                                HasSubstr("  12 | optimizer: {sgd: {lr: 0.1}}"),
                                HasSubstr("many.yaml:19:1: colour: unknown key"),
                                HasSubstr("many.yaml:27: over the quota"),
                                HasSubstr("submitted 2 of 5 documents; 3 were refused")));
}

TEST_F(Many, ALongListOfMistakesIsCut) {
  std::string documents;
  for (int i = 0; i < 25; ++i) documents += Document("bad name");
  const CommandResult result =
      runner_.Run({"submit", "-f", runner_.home.Write("many.yaml", documents)});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("25 were refused, of which 20 are listed above"),
                                Not(HasSubstr("many.yaml:128:"))));
}

TEST_F(Many, MoreThanOneMessageIsSent) {
  std::string documents;
  for (int i = 0; i < 700; ++i) documents += Document(absl::StrCat("job-", i));
  const CommandResult result =
      runner_.Run({"submit", runner_.home.Write("many.yaml", documents), "-o", "name", "-q"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 700);
  EXPECT_THAT(result.out, ::testing::EndsWith("jobs/700\n"));
  EXPECT_EQ(result.err, "");
}

TEST_F(Many, AStreamThatBreaksMakesNoJobTwice) {
  server_.BreakNextStream();
  const std::string file = runner_.home.Write("many.yaml", Document("one") + Document("two"));
  const CommandResult result = runner_.Run({"submit", "-f", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jobs/1\njobs/2\n");
  EXPECT_EQ(runner_.Run({"ls", "-o", "name"}).out, "jobs/2\njobs/1\n");
}

TEST_F(Many, ADryRunChecksAllAndNeedsNoServer) {
  server_.Stop();
  const std::string file = runner_.home.Write("many.yaml", Document("one") + Document("a b"));
  const CommandResult result = runner_.Run({"submit", "-f", file, "--dry-run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("many.yaml:8:7: name: 'a b' is not accepted"),
                                HasSubstr("1 of 2 documents are fine; nothing was submitted")));
}

TEST_F(Many, ADryRunAsksTheServerAboutEachSpec) {
  server_.RefuseNextCreate(error::CannotRun("it needs 4 devices; the pool has 2"));
  const std::string file = runner_.home.Write("many.yaml", Document("one") + Document("two"));
  const CommandResult result = runner_.Run({"submit", "-f", file, "--dry-run"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, AllOf(HasSubstr("many.yaml:2: this job can never run here: it needs 4"),
                                HasSubstr("1 of 2 documents are fine; nothing was submitted")));
  EXPECT_EQ(runner_.Run({"ls", "-o", "name"}).out, "");
}

TEST_F(Many, FollowingMeansOneJob) {
  const std::string file = runner_.home.Write("many.yaml", Document("one") + Document("two"));
  const CommandResult result = runner_.Run({"submit", "-f", file, "--follow"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--follow follows one job, and these are 2"));
  EXPECT_EQ(runner_.Run({"submit"}).exit_code, 2);
}

TEST_F(Many, ASpecCarriesWhatStandsBesideIt) {
  server_.AddJob("first", v1::JOB_STATE_RUNNING);
  const std::string file = runner_.home.Write("one.yaml", Document("one"));
  const CommandResult result =
      runner_.Run({"submit", file, "--array", "100%8", "--after", "last", "--after-ok", "1",
                   "--begin", "2030-01-02T03:04:05Z", "--project", "vision", "--priority", "-5",
                   "--reservation", "course", "--elastic", "2-8"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::CreateJobRequest request = server_.last_create();
  const v1::SubmitOptions& options = request.options();
  EXPECT_EQ(options.array_size(), 100);
  EXPECT_EQ(options.array_parallel(), 8);
  EXPECT_THAT(options.after(), ElementsAre("jobs/1"));
  EXPECT_THAT(options.after_ok(), ElementsAre("jobs/1"));
  EXPECT_EQ(options.begin_time().seconds(), 1'893'553'445);
  EXPECT_EQ(options.reservation(), "course");
  EXPECT_EQ(request.spec().project(), "vision");
  EXPECT_EQ(request.spec().priority(), -5);
  EXPECT_EQ(request.spec().devices().min(), 2);
  EXPECT_EQ(request.spec().devices().max(), 8);
  EXPECT_FALSE(request.spec().devices().has_count());
}

TEST_F(Many, FlagsThatCannotBeReadAreMistakesOfUse) {
  const std::string file = runner_.home.Write("one.yaml", Document("one"));
  for (const auto& [flag, value, words] :
       std::vector<std::array<const char*, 3>>{{"--array", "many", "is not a size"},
                                               {"--array", "5%0", "is not a size"},
                                               {"--elastic", "8-2", "is not a range of devices"},
                                               {"--begin", "tea time", "is not a time"},
                                               {"--begin", "+2", "needs a unit"}}) {
    const CommandResult result = runner_.Run({"submit", file, flag, value});
    EXPECT_EQ(result.exit_code, 2) << flag;
    EXPECT_THAT(result.err, HasSubstr(words)) << flag;
  }
}

TEST(Moments, AreTimesOfDayDatesAndSpans) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_EQ(*commands::ParseMoment("+90min", now, now), now + absl::Minutes(90));
  EXPECT_EQ(*commands::ParseMoment("+2h", now, now + absl::Hours(1)), now + absl::Hours(3));
  EXPECT_EQ(*commands::ParseMoment("2030-01-02T03:04:05+01:00", now, now),
            absl::FromUnixSeconds(1'893'549'845));
  const absl::TimeZone zone = absl::LocalTimeZone();
  for (const absl::Duration from_now : {absl::Minutes(1), absl::Hours(23)}) {
    const absl::Time then = now + from_now;
    const std::string text = absl::FormatTime("%H:%M", then, zone);
    EXPECT_EQ(*commands::ParseMoment(text, now, now),
              absl::FromUnixSeconds(absl::ToUnixSeconds(then) / 60 * 60))
        << text;
  }
  EXPECT_FALSE(commands::ParseMoment("25:00", now, now).ok());
}

}  // namespace
}  // namespace trainyard::testing
