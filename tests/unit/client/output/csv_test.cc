// Tests CSV.
#include "client/output/csv.h"

#include <gtest/gtest.h>

namespace trainyard::output {
namespace {

TEST(Csv, HasAColumnForEachField) {
  EXPECT_EQ(JsonToCsv(R"([{"name": "a", "spec": {"seed": 1, "tags": ["x", "y"]}},
                         {"name": "b", "state": true, "spec": {"lr": 0.5}}])"),
            "name,spec.seed,spec.tags,state,spec.lr\n"
            "a,1,\"[\"\"x\"\",\"\"y\"\"]\",,\n"
            "b,,,true,0.5\n");
}

TEST(Csv, QuotesWhatWouldBreakALine) {
  EXPECT_EQ(JsonToCsv(R"([{"a,b": "x\ny", "c": "say \"so\"", "d": "plain words"}])"),
            "\"a,b\",c,d\n\"x\ny\",\"say \"\"so\"\"\",plain words\n");
}

TEST(Csv, OfNothingIsNothing) {
  EXPECT_EQ(JsonToCsv("[]"), "");
  EXPECT_EQ(JsonToCsv("no json"), "no json");
  EXPECT_EQ(JsonToCsv("[1]"), "[1]");
}

}  // namespace
}  // namespace trainyard::output
