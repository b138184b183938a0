// Tests what the report of plans says of candidates that were refused.
#include "tests/bench/gpu/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trainyard::engine::bench {
namespace {

using cuda::ComparedWith;
using cuda::PlanRecord;
using ::testing::HasSubstr;

const std::vector<PlanRecord>& Plans() {
  static const auto& plans = *new std::vector<PlanRecord>{
      {.problem = "unmeasured", .engine = "engine 1", .candidates = 1},
      {.problem = "lonely", .engine = "engine 1", .candidates = 1, .is_verified = true},
      {.problem = "product",
       .engine = "proposal 2",
       .candidates = 6,
       .is_verified = true,
       .compared_with = ComparedWith::kCandidates,
       .refused = {"proposal 1 differs"}},
      {.problem = "right",
       .engine = "engine 1",
       .candidates = 1,
       .is_verified = true,
       .compared_with = ComparedWith::kOwnKernel,
       .difference = 0.25},
      {.problem = "wrong",
       .engine = "engine 1",
       .candidates = 1,
       .is_verified = true,
       .compared_with = ComparedWith::kOwnKernel,
       .refused = {"engine 1 differs"},
       .is_disputed = true}};
  return plans;
}

TEST(PlanReport, SaysWhatEachWasComparedWith) {
  const std::string table = RenderPlans(Plans());
  EXPECT_THAT(table, HasSubstr("| unmeasured | engine 1 | 1 | 0.0 | 0.0 | not compared |"));
  EXPECT_THAT(table, HasSubstr("| lonely | engine 1 | 1 | 0.0 | 0.0 | nothing to compare with |"));
  EXPECT_THAT(table, HasSubstr("| 1 refused, compared with each other |"));
  EXPECT_THAT(table, HasSubstr("| agree with our own kernel to 0.25 of the bound |"));
  EXPECT_THAT(table, HasSubstr("| all differ from our own kernel |"));
  const nlohmann::json list = ToJson(Plans());
  EXPECT_EQ(list[1]["compared_with"], "nothing");
  EXPECT_EQ(list[2]["compared_with"], "each other");
  EXPECT_EQ(list[4]["compared_with"], "our own kernel");
  EXPECT_EQ(list[3]["disputed"], false);
  EXPECT_EQ(list[4]["disputed"], true);
  EXPECT_EQ(
      PlansLine(Plans()),
      "plans: 5; 8 candidates of 3 were compared, of 2 with our own kernels, 2 refused; 1 had "
      "nothing to be compared with");
}

TEST(PlanReport, NamesAllThatWereRefused) {
  EXPECT_EQ(CheckVerified(Plans()), absl::FailedPreconditionError(
                                        "2 candidates compute something else: product: proposal 1 "
                                        "differs; wrong: engine 1 differs"));
  EXPECT_EQ(CheckVerified({Plans().begin(), Plans().begin() + 2}), absl::OkStatus());
}

}  // namespace
}  // namespace trainyard::engine::bench
