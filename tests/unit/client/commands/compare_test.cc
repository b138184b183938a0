// Tests verify, note, tag, lineage, compare, and the filters, orders and columns of ls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/lineage_tree.h"
#include "client/output/plot.h"
#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::commands {
namespace {

using ::testing::AllOf;
using testing::CommandResult;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CompareVerbs : public ::testing::Test {
 protected:
  static v1::Verification Verification(v1::VerificationResult result) {
    v1::Verification verification;
    verification.set_job("jobs/2");
    verification.set_result(result);
    verification.set_tolerance(0.01);
    verification.add_reasons("train.loss differs by 4% in the mean, from step 2 on");
    verification.add_reasons("the versions of the workers differ: 1 for jobs/1, 2 for jobs/2");
    verification.set_devices("2 x cpu");
    verification.set_user("anna");
    v1::MetricComparison* metric = verification.add_metrics();
    metric->set_name("train.loss");
    metric->set_points(120);
    metric->set_left(0.5);
    metric->set_right(0.52);
    metric->set_difference(0.04);
    metric->set_first_step(2);
    return verification;
  }
  // jobs/1 with a loss and an accuracy, and jobs/2 with another rate and better results.
  void AddTwoJobs() {
    server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
    server_.AddJob("second", v1::JOB_STATE_SUCCEEDED);
    for (int i = 0; i < 2; ++i) {
      const std::string job = absl::StrCat("jobs/", i + 1);
      for (int step = 1; step <= 4; ++step) {
        server_.AddPoint(job, step, "train.loss", (2.0 - i * 0.5) / step);
        server_.AddPoint(job, step, "test.accuracy", step == 3 ? 0.9 : 0.5 + 0.1 * i);
      }
    }
    server_.ChangeJob("jobs/1",
                      [](v1::Job& job) { (*job.mutable_final_metrics())["test.accuracy"] = 0.5; });
    server_.ChangeJob("jobs/2", [](v1::Job& job) {
      job.mutable_resolved_spec()->mutable_optimizer()->mutable_sgd()->set_lr(0.25);
      job.mutable_device_time()->set_seconds(5400);
      (*job.mutable_final_metrics())["test.accuracy"] = 0.625;
    });
  }

  testing::FakeServer server_;
  testing::CommandRunner runner_{server_.address()};
};

TEST_F(CompareVerbs, VerifyFollowsTheSecondRunAndSaysWhatCameOut) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  server_.MakeNewJobs(v1::JOB_STATE_SUCCEEDED);
  server_.AddVerification("jobs/1", Verification(v1::VERIFICATION_RESULT_DIFFERENT));
  const CommandResult result =
      runner_.Run({"verify", "1", "--tolerance", "0.02", "--devices", "2"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(result.out,
            "METRIC      POINTS  jobs/1  jobs/2  DIFFERENCE  FIRST STEP\n"
            "train.loss     120     0.5    0.52          4%           2\n"
            "\n"
            "jobs/2 is DIFFERENT from jobs/1 (tolerance 1%)\n"
            "  train.loss differs by 4% in the mean, from step 2 on\n"
            "  the versions of the workers differ: 1 for jobs/1, 2 for jobs/2\n");
  EXPECT_THAT(result.err, HasSubstr("jobs/2 runs jobs/1 again"));
  EXPECT_TRUE(server_.last_clone().verifies());
  EXPECT_EQ(server_.last_clone().tolerance(), 0.02);
  ASSERT_EQ(server_.last_clone().changes_size(), 1);
  EXPECT_EQ(server_.last_clone().changes(0).path(), "devices.count");
  EXPECT_FALSE(server_.last_clone().request_id().empty());
}

TEST_F(CompareVerbs, TheExitCodeOfVerifyIsTheVerdict) {
  server_.MakeNewJobs(v1::JOB_STATE_SUCCEEDED);
  for (const auto& [verdict, code] : {std::pair(v1::VERIFICATION_RESULT_IDENTICAL, 0),
                                      {v1::VERIFICATION_RESULT_EQUIVALENT, 0},
                                      {v1::VERIFICATION_RESULT_FAILED, 1}}) {
    const std::string first = server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
    v1::Verification verification = Verification(verdict);
    const int number = std::stoi(first.substr(5));
    verification.set_job(absl::StrCat("jobs/", number + 1));
    server_.AddVerification(first, verification);
    EXPECT_EQ(runner_.Run({"verify", first}).exit_code, code);
  }
  server_.AddJob("last", v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(runner_.Run({"verify", "last"}).err, HasSubstr("was deleted before"));
  EXPECT_EQ(runner_.Run({"verify", "1", "--tolerance", "much"}).exit_code, 2);
}

TEST_F(CompareVerbs, VerifyCanBeLeftAloneAndAskedLater) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  const CommandResult detached = runner_.Run({"verify", "1", "--detach"});
  EXPECT_EQ(detached.exit_code, 0) << detached.err;
  EXPECT_EQ(detached.out, "jobs/2\n");
  EXPECT_THAT(runner_.Run({"verify", "1", "--list"}).err, HasSubstr("was never run again"));
  server_.AddVerification("jobs/1", Verification(v1::VERIFICATION_RESULT_IDENTICAL));
  EXPECT_THAT(runner_.Run({"verify", "1", "--list"}).out,
              AllOf(HasSubstr("2  IDENTICAL  2 x cpu"), HasSubstr("anna")));
  const auto json = nlohmann::json::parse(runner_.Run({"verify", "1", "--list", "-o", "json"}).out);
  EXPECT_EQ(json.at(0).at("result"), "VERIFICATION_RESULT_IDENTICAL");
}

TEST_F(CompareVerbs, NotesAndTags) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(runner_.Run({"note", "1"}).err, HasSubstr("has no note"));
  EXPECT_EQ(runner_.Run({"note", "1", "the best", "so far"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"note", "1"}).out, "the best so far\n");
  EXPECT_EQ(runner_.Run({"tag", "1", "good", "+paper"}).out, "jobs/1: good paper\n");
  EXPECT_EQ(runner_.Run({"tag", "1", "--remove", "good"}).out, "jobs/1: paper\n");
  EXPECT_EQ(runner_.Run({"tag", "1"}).out, "jobs/1: paper\n");
  EXPECT_THAT(runner_.Run({"show", "1"}).out,
              AllOf(HasSubstr("note          the best so far\n"),
                    HasSubstr("tags          paper\n"), Not(HasSubstr("verified"))));
  EXPECT_THAT(runner_.Run({"ls", "-o", "wide"}).out,
              AllOf(HasSubstr("NOTE"), HasSubstr("the best so far")));
  EXPECT_EQ(runner_.Run({"note", "1", "--rm"}).exit_code, 0);
  EXPECT_THAT(runner_.Run({"note", "1"}).err, HasSubstr("has no note"));
  EXPECT_EQ(runner_.Run({"note", "1", "text", "--rm"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"tag", "1", "--remove", "paper"}).out, "jobs/1: no tags\n");
}

TEST_F(CompareVerbs, ShowSaysHowOftenAJobWasReproduced) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.mutable_verified()->set_runs(3);
    job.mutable_verified()->set_reproduced(2);
    job.mutable_verified()->mutable_last_time()->set_seconds(1'796'000'000);
    job.mutable_verified()->set_last_devices("2 x cpu");
    job.mutable_provenance()->set_verifies("jobs/7");
  });
  EXPECT_THAT(
      runner_.Run({"show", "1"}).out,
      AllOf(HasSubstr("verified      reproduced 2 of 3 times, last 2026-11-30 on 2 x cpu\n"),
            HasSubstr("verifies      jobs/7\n")));
}

TEST_F(CompareVerbs, LsPassesItsFilterAndOrderOn) {
  AddTwoJobs();
  const CommandResult result =
      runner_.Run({"ls", "--where", "test.accuracy > 0.5", "--sort", "-test.accuracy", "--columns",
                   "id,name,test.accuracy,optimizer.sgd.lr,user"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "JOB  NAME    TEST.ACCURACY  OPTIMIZER.SGD.LR  USER\n"
            "  2  second          0.625              0.25  anna\n"
            "  1  first             0.5               0.1  anna\n");
  EXPECT_EQ(server_.last_list().where(), "test.accuracy > 0.5");
  EXPECT_EQ(server_.last_list().order_by(), "test.accuracy desc");
  EXPECT_FALSE(server_.last_list().group_arrays());
  EXPECT_THAT(runner_.Run({"ls", "--sort", "test.accuracy", "-o", "name"}).out, "jobs/1\njobs/2\n");
  EXPECT_EQ(server_.last_list().order_by(), "test.accuracy");
  runner_.Run({"ls", "--sort", "accuracy", "--reverse", "-o", "name"});
  EXPECT_EQ(server_.last_list().order_by(), "") << "a column of the client";
  EXPECT_THAT(runner_.Run({"ls", "--columns", "train.epcohs"}).err,
              HasSubstr("did you mean 'train.epochs'?"));
}

TEST_F(CompareVerbs, CompareShowsWhatDiffers) {
  AddTwoJobs();
  const CommandResult result = runner_.Run({"compare", "1", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("SPEC                    1         2\n"
                                          "name              \"first\"  \"second\"\n"
                                          "optimizer.sgd.lr      0.1      0.25\n"),
                                HasSubstr("test.accuracy last  0.5    0.6\n"
                                          "test.accuracy best  0.9    0.9\n"
                                          "train.loss last     0.5  0.375\n"),
                                HasSubstr("device-hours          0        1.5\n"),
                                HasSubstr("  a 1  first\n  b 2  second\n")));
  EXPECT_THAT(runner_.Run({"compare", "1-2", "--at", "2"}).out,
              AllOf(HasSubstr("UP TO STEP 2"), HasSubstr("train.loss last       1  0.75\n")));
  const auto json = nlohmann::json::parse(runner_.Run({"compare", "1", "2", "-o", "json"}).out);
  EXPECT_EQ(json.at("spec").at("optimizer.sgd.lr"), nlohmann::json::parse("[0.1, 0.25]"));
  EXPECT_EQ(json.at("metrics").at("test.accuracy").at(1).at("best"), 0.9);
  EXPECT_EQ(json.at("jobs").at(1).at("device_hours"), 1.5);
  EXPECT_EQ(runner_.Run({"compare", "1"}).exit_code, 2);
}

TEST_F(CompareVerbs, TheBestSpeedIsTheFastest) {
  AddTwoJobs();
  for (const char* metric : {"samples_per_s", "tokens_per_second"}) {
    for (int step = 1; step <= 3; ++step) {
      server_.AddPoint("jobs/1", step, metric, step == 2 ? 900 : 100);
      server_.AddPoint("jobs/2", step, metric, 200);
    }
  }
  EXPECT_THAT(runner_.Run({"compare", "1", "2"}).out,
              AllOf(HasSubstr("samples_per_s last      100    200\n"
                              "samples_per_s best      900    200\n"),
                    HasSubstr("tokens_per_second best  900    200\n")));
}

v1::Lineage SmallLineage() {
  v1::Lineage lineage;
  const auto add = [&lineage](const std::string& name, const std::string& title,
                              v1::JobState state) {
    v1::LineageNode* node = lineage.add_nodes();
    node->set_name(name);
    node->set_title(title);
    node->set_state(state);
    if (!title.empty()) node->set_user("anna");
    return node;
  };
  const auto link = [](v1::LineageNode* node, v1::LineageKind kind, const std::string& parent,
                       int64_t step = 0) {
    v1::LineageLink* added = node->add_links();
    added->set_kind(kind);
    added->set_parent(parent);
    added->set_step(step);
  };
  add("jobs/1", "", v1::JOB_STATE_UNSPECIFIED);
  v1::LineageNode* second = add("jobs/2", "base", v1::JOB_STATE_SUCCEEDED);
  link(second, v1::LINEAGE_KIND_CLONE, "jobs/1");
  (*second->mutable_final_metrics())["test.accuracy"] = 0.912;
  second->mutable_verified()->set_runs(2);
  second->mutable_verified()->set_reproduced(1);
  v1::LineageNode* third = add("jobs/3", "base", v1::JOB_STATE_SUCCEEDED);
  link(third, v1::LINEAGE_KIND_VERIFICATION, "jobs/2");
  v1::LineageNode* fourth = add("jobs/4", "<long>", v1::JOB_STATE_FAILED);
  link(fourth, v1::LINEAGE_KIND_CLONE, "jobs/1");
  link(fourth, v1::LINEAGE_KIND_FROM, "jobs/2", 1200);
  v1::LineageNode* fifth = add("jobs/5", "late", v1::JOB_STATE_RUNNING);
  link(fifth, v1::LINEAGE_KIND_INIT, "jobs/4", 600);
  link(fifth, v1::LINEAGE_KIND_SAVED_SPEC, "specs/late/versions/2");
  return lineage;
}

TEST_F(CompareVerbs, LineageIsATree) {
  server_.SetLineage(SmallLineage());
  const CommandResult result = runner_.Run({"lineage", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "jobs/1  deleted\n"
            "`- jobs/2  base *  SUCCEEDED  anna  test.accuracy 91.2%  reproduced 1 of 2  (clone)\n"
            "   |- jobs/3  base  SUCCEEDED  anna  (verification)\n"
            "   `- jobs/4  <long>  FAILED  anna  (clone of jobs/1; from step 1200)\n"
            "      `- jobs/5  late  RUNNING  anna  (weights of step 600; saved spec "
            "specs/late/versions/2)\n");
  EXPECT_THAT(runner_.Run({"lineage", "2", "-o", "json"}).out, HasSubstr("LINEAGE_KIND_FROM"));
}

TEST_F(CompareVerbs, LineageInUnicodeHasChanges) {
  output::Terminal terminal;
  terminal.unicode = true;
  EXPECT_THAT(LineageTree(SmallLineage(), "jobs/2", {{"jobs/3", "lr 0.1 -> 0.2"}}, terminal),
              AllOf(HasSubstr("   ├─ jobs/3  base  SUCCEEDED  anna  (verification; lr 0.1 -> "
                              "0.2)\n"),
                    HasSubstr("   └─ jobs/4"), HasSubstr("└─ jobs/2")));
}

TEST_F(CompareVerbs, LineageIsAPicture) {
  server_.SetLineage(SmallLineage());
  const std::string file = runner_.home.File("family.svg");
  EXPECT_EQ(runner_.Run({"lineage", "2", "-O", file}).exit_code, 0);
  const std::string svg = *ReadFile(file);
  EXPECT_THAT(
      svg, AllOf(HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\""), HasSubstr("&lt;long&gt;"),
                 Not(HasSubstr("<long>")), HasSubstr("from step 1200"), HasSubstr("</svg>\n")));
  EXPECT_EQ(runner_.Run({"lineage", "2", "-O", "-"}).out, svg);
}

TEST(RenderCurves, EachCurveHasASignOfItsOwn) {
  const std::vector<output::Curve> curves = {{"one", {{1, 1}, {2, 2}}}, {"two", {{1, 2}, {3, 1}}}};
  output::PlotOptions options;
  options.unicode = true;
  output::Terminal terminal;
  const std::string letters = output::RenderCurves("loss", curves, options, terminal);
  EXPECT_THAT(letters, AllOf(HasSubstr("a"), HasSubstr("b"), HasSubstr("  a one\n  b two\n"),
                             Not(HasSubstr("*"))));
  terminal.color = true;
  EXPECT_THAT(output::RenderCurves("loss", curves, options, terminal),
              AllOf(HasSubstr("\xff[34m"), HasSubstr("\xff[33m"), HasSubstr("━━")));
  EXPECT_EQ(output::RenderCurves("loss", {{"none", {}}}, options, terminal), "loss: no points\n");
}

}  // namespace
}  // namespace trainyard::commands
