// Tests plots, compared character by character.
#include "client/output/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_split.h"
#include "client/output/terminal.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"

namespace trainyard::output {
namespace {

using ::testing::HasSubstr;

// A loss that falls, with one spike.
std::vector<Point> Loss() {
  std::vector<Point> points;
  for (int step = 1; step <= 936; ++step) {
    points.push_back({static_cast<double>(step), 0.3 + 2.0 * std::exp(-step / 150.0)});
  }
  points[600].y = 1.9;
  return points;
}

void ExpectGolden(const std::string& name, const std::string& plot) {
  const auto golden = ReadFile(trainyard::testing::SourcePath("tests/data/plots/" + name));
  ASSERT_TRUE(golden.ok()) << golden.status() << "\n" << plot;
  EXPECT_EQ(plot, *golden);
}

TEST(Plot, ACurveInBraille) {
  PlotOptions options;
  options.unicode = true;
  ExpectGolden("loss_unicode.txt", RenderPlot("train.loss", Loss(), options));
}

TEST(Plot, ACurveInAscii) {
  ExpectGolden("loss_ascii.txt", RenderPlot("train.loss", Loss(), PlotOptions()));
}

TEST(Plot, NoLineIsWiderThanAskedFor) {
  for (const int width : {40, 72, 100, 200}) {
    PlotOptions options;
    options.width = width;
    options.unicode = true;
    const std::string plot = RenderPlot("loss", Loss(), options);
    const std::vector<std::string> lines = absl::StrSplit(plot, '\n');
    // The last line carries the axis' name behind its end.
    for (size_t i = 0; i + 2 < lines.size(); ++i) EXPECT_LE(DisplayWidth(lines[i]), width);
  }
}

TEST(Plot, WhatIsNotFiniteIsCountedAndNotDrawn) {
  const std::string plot =
      RenderPlot("loss", {{1, 2.0}, {2, std::nan("")}, {3, INFINITY}, {4, 1.0}}, PlotOptions());
  EXPECT_THAT(plot, HasSubstr("loss (2 points are not finite and not drawn)\n"));
}

TEST(Plot, ConstantsAndSinglePointsAndNothingAreDrawnToo) {
  EXPECT_THAT(RenderPlot("lr", {{1, 0.1}, {2, 0.1}}, PlotOptions()), HasSubstr("*"));
  EXPECT_THAT(RenderPlot("lr", {{5, 0.0}}, PlotOptions()), HasSubstr("*"));
  EXPECT_EQ(RenderPlot("lr", {}, PlotOptions()), "lr: no points\n");
}

}  // namespace
}  // namespace trainyard::output
