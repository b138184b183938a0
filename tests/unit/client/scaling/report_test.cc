// Tests the scaling report as text, JSON and picture.
#include "client/scaling/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/scaling/chart.h"

namespace trainyard::scaling {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Measurement Point(int devices, double step_seconds) {
  Measurement point;
  point.devices = devices;
  point.jobs = {"jobs/" + std::to_string(devices)};
  point.step_seconds = step_seconds;
  point.step_seconds_of_runs = {step_seconds};
  point.final_loss = 1.5;
  point.weights = "xxh3-128:1";
  return point;
}

Report SampleReport() {
  Report report;
  report.name = "wrn <small>";
  report.source = "jobs/7";
  report.model = "wide_resnet";
  report.global_batch = 128;
  report.replicas = 4;
  report.steps = 100;
  report.tolerance = 0.05;
  report.measured = {Point(1, 0.100), Point(2, 0.055), Point(4, 0.040)};
  report.measured[0].compute_seconds = 0.098;
  report.measured[1].comm_seconds = 0.010;
  report.measured[1].exposed_seconds = 0.001;
  report.measured[1].comm_bytes = 1e7;
  report.measured[1].link_bytes_per_s = 1e9;
  return report;
}

TEST(ScalingReport, TellsSpeedUpEfficiencyAndWhatOthersHavePublished) {
  const std::string text = ReportText(SampleReport());
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("wrn <small>: wide_resnet, batch 128 of 4 replicas, 100 steps\n"),
            HasSubstr("DEVICES  SAMPLES/S  SPEED-UP  EFFICIENCY  HIDDEN  PREDICTED   ERROR  AGREES"
                      "  PUBLISHED\n"),
            HasSubstr("      1      1,280     1.00x      100.0%       -      1,280   +0.0%  yes"),
            HasSubstr("      2      2,327     1.82x       90.9%   90.0%"),
            HasSubstr("yes         3.33x\n"), HasSubstr("final losses agree within 5.0%\n"),
            HasSubstr("8 devices would give"), HasSubstr("with 16 replicas"),
            HasSubstr("published: Wide ResNet on CIFAR-10")));
}

TEST(ScalingReport, ResultsThatDifferAreSaid) {
  Report report = SampleReport();
  report.measured[2].final_loss = 2;
  EXPECT_FALSE(report.AllAgree());
  EXPECT_THAT(ReportText(report), AllOf(HasSubstr("NO  "), HasSubstr("DO NOT agree")));
  report.is_bitwise = true;
  EXPECT_TRUE(report.AllAgree()) << "the bytes are what counts";
  report.measured[1].weights = "xxh3-128:2";
  EXPECT_FALSE(report.AllAgree());
  EXPECT_THAT(ReportText(report), HasSubstr("DIFFER"));
}

TEST(ScalingReport, WithoutOneDeviceTheFewestAreTheMeasureAndNothingIsPredicted) {
  Report report = SampleReport();
  report.measured.erase(report.measured.begin());
  EXPECT_DOUBLE_EQ(report.SpeedUp(report.measured[0]), 2);
  EXPECT_DOUBLE_EQ(report.SpeedUp(report.measured[1]), 2 * 0.055 / 0.040);
  EXPECT_FALSE(report.PredictedSpeed(4).has_value());
  EXPECT_THAT(ReportText(report), HasSubstr("no prediction"));
  EXPECT_TRUE(nlohmann::json::parse(ReportJson(report))["prediction"].is_null());
}

TEST(ScalingReport, PredictsBeyondWhatWasMeasured) {
  const Report report = SampleReport();
  EXPECT_THAT(report.Beyond(), ElementsAre(8, 16, 32));
  EXPECT_TRUE(report.PredictedSpeed(128).has_value());
  EXPECT_FALSE(report.PredictedSpeed(129).has_value()) << "a sample is not divided";
}

TEST(ScalingReport, APredictionThatMissesWhatWasMeasuredIsNotToBeTrusted) {
  Report report = SampleReport();
  for (Measurement& point : report.measured) {
    point.step_seconds =
        static_cast<double>(report.global_batch) / *report.PredictedSpeed(point.devices);
  }
  EXPECT_THAT(report.Warnings(), IsEmpty());
  EXPECT_THAT(ReportText(report), Not(HasSubstr("warning")));
  report.measured[2].step_seconds /= 1.3;
  const char* expected = "the prediction is wrong by 23.1% where it was measured: do not trust it";
  EXPECT_THAT(report.Warnings(), ElementsAre(expected));
  EXPECT_THAT(ReportText(report), HasSubstr(absl::StrCat("warning: ", expected, "\n")));
  EXPECT_THAT(ReportSvg(report), HasSubstr(expected));
  EXPECT_EQ(nlohmann::json::parse(ReportJson(report))["warnings"][0], expected);
}

TEST(ScalingReport, ABusyMachineIsTold) {
  Report report = SampleReport();
  report.measured[1].step_spread = 0.2;
  EXPECT_THAT(ReportText(report), Not(HasSubstr("busy")));
  report.measured[1].step_spread = 0.4;
  EXPECT_THAT(ReportText(report), HasSubstr("warning: the times of steps on 2 devices differ by "
                                            "40.0%: the machine was busy\n"));
}

TEST(ScalingReport, JsonHasAllOfIt) {
  const auto json = nlohmann::json::parse(ReportJson(SampleReport()));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["measured"][1]["devices"], 2);
  EXPECT_NEAR(json["measured"][1]["speed_up"], 1.818, 1e-3);
  EXPECT_NEAR(json["measured"][1]["hidden_fraction"], 0.9, 1e-9);
  EXPECT_TRUE(json["measured"][0]["hidden_fraction"].is_null());
  EXPECT_EQ(json["prediction"]["beyond"][0]["devices"], 8);
  EXPECT_EQ(json["published"]["points"][0]["speed_up"], 3.33);
  EXPECT_EQ(json["agree"], true);
}

TEST(ScalingChart, ShowsWhatWasMeasuredPredictedAndPublished) {
  const std::string svg = ReportSvg(SampleReport());
  EXPECT_THAT(svg,
              AllOf(HasSubstr("<svg xmlns="), HasSubstr("wrn &lt;small&gt;"), HasSubstr(">1.82x<"),
                    HasSubstr(">2.50x<"), HasSubstr(">predicted<"), HasSubstr(">published<"),
                    HasSubstr(">ideal<"), HasSubstr("</svg>\n"), Not(HasSubstr("nan"))));
}

TEST(ScalingChart, ShowsPredictionsBeyondWhatWasMeasured) {
  const Report report = SampleReport();
  const std::string svg = ReportSvg(report);
  for (const int devices : report.Beyond()) {
    EXPECT_THAT(svg, HasSubstr(absl::StrFormat(
                         ">%.2fx<", *report.PredictedSpeed(devices) / *report.PredictedSpeed(1))));
    EXPECT_THAT(svg, HasSubstr(absl::StrCat(">", devices, "<"))) << "on the axis";
  }
}

TEST(ScalingChart, SlowerThanOneDeviceIsShownToo) {
  Report report = SampleReport();
  report.measured[2].step_seconds = 0.3;
  EXPECT_THAT(ReportSvg(report), AllOf(HasSubstr(">0.33x<"), HasSubstr(">0.25x<")));
}

TEST(ScalingChart, LeavesOutWhatThereIsNot) {
  Report report = SampleReport();
  report.model = "mlp";
  report.measured.erase(report.measured.begin());
  EXPECT_THAT(ReportSvg(report), AllOf(Not(HasSubstr(">published<")), Not(HasSubstr(">predicted<")),
                                       HasSubstr(">measured<")));
}

}  // namespace
}  // namespace trainyard::scaling
