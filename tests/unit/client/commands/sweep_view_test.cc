// Tests the tables and the picture of sweeps, which need no server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/sweep_svg.h"
#include "client/commands/sweep_table.h"
#include "tests/unit/client/commands/xml_text.h"

namespace trainyard::commands {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using trainyard::testing::CountOf;
using trainyard::testing::MistakeOfXml;

v1::Sweep SweepOf(const std::map<std::string, std::string>& parameters) {
  v1::Sweep sweep;
  sweep.set_name("sweeps/3");
  sweep.set_title("a & b <c>");
  sweep.set_state(v1::SWEEP_STATE_RUNNING);
  sweep.set_best_trial(-1);
  v1::SweepSpec& spec = *sweep.mutable_spec()->mutable_sweep();
  for (const auto& [path, text] : parameters) (*spec.mutable_parameters())[path] = text;
  spec.set_minimize("test.loss");
  spec.set_search(v1::SWEEP_SEARCH_RANDOM);
  return sweep;
}

v1::SweepTrial& AddTrial(v1::Sweep& sweep, const std::map<std::string, std::string>& values) {
  v1::SweepTrial& trial = *sweep.add_trials();
  trial.set_index(sweep.trials_size() - 1);
  trial.set_state(v1::TRIAL_STATE_SUCCEEDED);
  for (const auto& [path, value] : values) (*trial.mutable_values())[path] = value;
  sweep.set_trials_begun(sweep.trials_size());
  return trial;
}

TEST(SweepTable, ParametersAreNamedByAsManyWordsAsTellThemApart) {
  const v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"},
                                   {"model.layers.stack[0].conv2d.channels", "[8, 16]"},
                                   {"model.layers.stack[3].conv2d.channels", "[8, 16]"},
                                   {"priority", "[1, 2]"}});
  EXPECT_THAT(ParameterNames(sweep.spec().sweep()),
              ElementsAre(Pair("model.layers.stack[0].conv2d.channels", "stack[0].conv2d.channels"),
                          Pair("model.layers.stack[3].conv2d.channels", "stack[3].conv2d.channels"),
                          Pair("optimizer.sgd.lr", "lr"), Pair("priority", "priority")));
}

TEST(SweepTable, ValuesHaveFourDigits) {
  EXPECT_EQ(ParameterText("0.031622776601"), "0.03162");
  EXPECT_EQ(ParameterText("128"), "128");
  EXPECT_EQ(ParameterText("\"relu\""), "relu");
  EXPECT_EQ(ParameterText("[32,64]"), "[32,64]");
  EXPECT_EQ(ParameterText("gelu"), "gelu");
}

TEST(SweepTable, TrialsWithoutNumbersComeLast) {
  v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"}});
  AddTrial(sweep, {});
  AddTrial(sweep, {}).set_value(std::numeric_limits<double>::quiet_NaN());
  AddTrial(sweep, {}).set_value(0.5);
  AddTrial(sweep, {}).set_value(0.25);
  std::vector<int> order;
  for (const v1::SweepTrial* trial : TrialsBestFirst(sweep)) order.push_back(trial->index());
  EXPECT_THAT(order, ElementsAre(3, 2, 1, 0));
  sweep.mutable_spec()->mutable_sweep()->set_maximize("test.accuracy");
  EXPECT_EQ(TrialsBestFirst(sweep)[0]->index(), 2);
  EXPECT_THAT(TrialTable(sweep, {}, 3), HasSubstr("  ... and 2 more\n"));
}

TEST(SweepTable, FailedTrialsSayWhy) {
  v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"}});
  AddTrial(sweep, {{"optimizer.sgd.lr", "0.1"}});
  EXPECT_THAT(TrialTable(sweep, {}, 0), Not(HasSubstr("WHY")));
  v1::SweepTrial& failed = AddTrial(sweep, {{"optimizer.sgd.lr", "0.9"}});
  failed.set_state(v1::TRIAL_STATE_FAILED);
  failed.set_failure("NAN_LOSS: the loss is nan at step 12");
  EXPECT_THAT(TrialTable(sweep, {}, 0),
              AllOf(HasSubstr("WHY"), HasSubstr("FAILED"), HasSubstr("the loss is nan")));
}

TEST(SweepTable, CopiesOfPopulationsAreShown) {
  v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"}});
  sweep.mutable_spec()->mutable_sweep()->set_search(v1::SWEEP_SEARCH_PBT);
  AddTrial(sweep, {}).set_copied_from(-1);
  AddTrial(sweep, {}).set_copied_from(0);
  EXPECT_THAT(TrialTable(sweep, {}, 0), HasSubstr("COPY OF"));
}

TEST(SweepTable, TheLadderCountsWhoReportedAndWhoWentOn) {
  v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"}});
  EXPECT_EQ(RungLadder(sweep), "");
  for (const double share : {0.0625, 0.25, 0.375, 1.0}) sweep.add_rungs(share);
  for (int i = 0; i < 12; ++i) {
    v1::SweepTrial& trial = AddTrial(sweep, {});
    trial.add_reports()->set_rung(0);
    trial.add_reports()->set_rung(0);
    if (i > 2) continue;
    trial.set_rung(1);
    if (i == 0) trial.add_reports()->set_rung(1);
  }
  EXPECT_EQ(RungLadder(sweep),
            "rung 0  1/16 of the training    12 reported, 3 went on\n"
            "rung 1  1/4 of the training      1 reported, 0 went on\n"
            "rung 2  37.5% of the training    0 reported, 0 went on\n"
            "rung 3  the whole training       0 reported\n");
}

TEST(SweepTable, TheSheetSaysWhatEndsItEarly) {
  v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"}});
  v1::SweepSpec& spec = *sweep.mutable_spec()->mutable_sweep();
  spec.mutable_budget()->set_seconds(36'000);
  spec.set_target(0.25);
  spec.set_patience(4);
  sweep.set_reason("its jobs wait for devices");
  sweep.add_warnings("the program has no checkpoints, so worse trials are stopped for good");
  EXPECT_THAT(SweepSheet(sweep, {}),
              AllOf(HasSubstr("ends early    after 10h 00m of device time\n"),
                    HasSubstr("              once test.loss is 0.25 or better\n"),
                    HasSubstr("              once 4 trials in a row were no better\n"),
                    HasSubstr("              its jobs wait for devices\n"),
                    HasSubstr("warning       the program has no checkpoints")));
}

TEST(SweepSvg, HasALineForEachTrialThatHasValues) {
  v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"},
                             {"model.mlp.activation", "choice(relu, gelu)"},
                             {"train.global_batch", "[32, 64, 128]"}});
  const auto values = [](double rate) {
    return std::map<std::string, std::string>{{"optimizer.sgd.lr", absl::StrCat(rate)},
                                              {"model.mlp.activation", "\"gelu\""},
                                              {"train.global_batch", "64"}};
  };
  AddTrial(sweep, values(0.01)).set_value(0.5);
  AddTrial(sweep, values(0.1)).set_value(0.25);
  v1::SweepTrial& stopped = AddTrial(sweep, values(1e-4));
  stopped.set_value(2);
  stopped.set_state(v1::TRIAL_STATE_STOPPED);
  AddTrial(sweep, values(1)).set_value(std::numeric_limits<double>::quiet_NaN());
  AddTrial(sweep, values(0.5));
  AddTrial(sweep, {});
  sweep.set_best_trial(1);
  const std::string svg = SweepSvg(sweep);
  EXPECT_EQ(MistakeOfXml(svg), "") << svg;
  EXPECT_EQ(CountOf(svg, "<polyline "), 5) << "the last trial has no values yet";
  EXPECT_EQ(CountOf(svg, "stroke-width=\"4\""), 1);
  EXPECT_EQ(CountOf(svg, "stroke-opacity=\"0.4\""), 1);
  EXPECT_EQ(CountOf(svg, "stroke-dasharray"), 1);
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg xmlns=\"http://www.w3.org/2000/svg\""),
                         HasSubstr("sweeps/3  a &amp; b &lt;c&gt;"), HasSubstr(">lr<"),
                         HasSubstr(">log scale<"), HasSubstr(">0.0001<"), HasSubstr(">gelu<"),
                         HasSubstr(">test.loss<"), HasSubstr(">0.25<"), HasSubstr(">2<"),
                         HasSubstr("prefers-color-scheme:dark")));
  // The rate of the best trial is three quarters up its axis, and its value is at the top.
  EXPECT_THAT(svg, HasSubstr("260.0,192.0"));
  EXPECT_THAT(svg, HasSubstr("600.0,116.0\" fill=\"none\" stroke-linejoin=\"round\" "
                             "stroke=\"#1e7acd\" stroke-width=\"4\""));
}

TEST(SweepSvg, ASweepThatHasJustBegunHasItsAxes) {
  const v1::Sweep sweep = SweepOf({{"optimizer.sgd.lr", "log(1e-4, 1)"}, {"broken", "log(1"}});
  const std::string svg = SweepSvg(sweep);
  EXPECT_EQ(MistakeOfXml(svg), "") << svg;
  EXPECT_EQ(CountOf(svg, "<polyline "), 0);
  EXPECT_THAT(svg, AllOf(HasSubstr(">lr<"), Not(HasSubstr(">broken<"))));
}

}  // namespace
}  // namespace trainyard::commands
