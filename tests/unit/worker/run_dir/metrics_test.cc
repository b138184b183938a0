#include "worker/run_dir/metrics.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::run_dir {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, ValuesReadBackAsTheSameDouble) {
  for (const double value :
       {0.1, 1.0 / 3, 1e308, -1e-308, 0.0, 123456789012345.0,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    std::string line;
    AppendMetricLine({1, "m", value, 2}, line);
    const auto read = DecodeMetricLine(line, "f");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->value, value);
  }
  std::string line;
  AppendMetricLine({1, "m", std::nan(""), 2}, line);
  EXPECT_TRUE(std::isnan(DecodeMetricLine(line, "f")->value));
}

TEST(Metrics, LinesThatAreNoPointAreRefused) {
  for (const char* line : {"", "{}", "7", R"({"step":1,"name":"a","value":1})",
                           R"({"step":-1,"name":"a","value":1,"time":1})",
                           R"({"step":1,"name":"","value":1,"time":1})",
                           R"({"step":1,"name":"a","value":null,"time":1})",
                           R"({"step":1,"name":"a","value":"one","time":1})"}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeMetricLine(line, "f").status())) << line;
  }
  const std::string long_name(kMaxMetricName + 1, 'a');
  std::string line;
  AppendMetricLine({1, long_name, 1, 1}, line);
  EXPECT_THAT(std::string(DecodeMetricLine(line, "f").status().message()),
              HasSubstr("has 201 bytes; expected 1 to 200"));
}

TEST(Metrics, TheWholeRangeOfIntegersIsChecked) {
  const std::string line = R"({"step":18446744073709551615,"name":"a","value":1,"time":1})";
  EXPECT_THAT(std::string(DecodeMetricLine(line, "f").status().message()), HasSubstr("'step' is"));
}

}  // namespace
}  // namespace trainyard::run_dir
