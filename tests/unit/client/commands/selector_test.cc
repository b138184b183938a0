// Tests the ways to spell jobs and checkpoints.
#include "client/commands/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/fake_server.h"

namespace trainyard::commands {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Selector, NumbersNamesRangesAndPositionsAreUnderstood) {
  EXPECT_THAT(*ParseSelector("12"), ElementsAre(Selection{-1, 12, 12}));
  EXPECT_THAT(*ParseSelector("jobs/12"), ElementsAre(Selection{-1, 12, 12}));
  EXPECT_THAT(*ParseSelector("last"), ElementsAre(Selection{0, 0, 0}));
  EXPECT_THAT(*ParseSelector("@~1"), ElementsAre(Selection{1, 0, 0}));
  EXPECT_THAT(*ParseSelector("1-10,15,last"),
              ElementsAre(Selection{-1, 1, 10}, Selection{-1, 15, 15}, Selection{0, 0, 0}));
}

TEST(Selector, WhatNamesNoJobIsRefusedWithTheAcceptedForms) {
  for (const char* text : {"", "0", "-3", "012", "5-2", "1,", "@~", "@~-1", "@~1000", "1-100000",
                           "jobs/", "jobs/x", "workers/a", "1o", "x*"}) {
    const auto parsed = ParseSelector(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("write 12, jobs/12, last"));
  }
}

class Resolve : public ::testing::Test {
 protected:
  void SetUp() override {
    auto link = link::ServerLink::Connect(server_.address(), interrupt_);
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
  }

  trainyard::testing::FakeServer server_;
  link::Interrupt interrupt_;
  std::unique_ptr<link::ServerLink> link_;
};

TEST_F(Resolve, PositionsCountFromTheNewestJob) {
  for (int i = 0; i < 3; ++i) server_.AddJob("a", v1::JOB_STATE_QUEUED);
  EXPECT_THAT(*ResolveSelectors(*link_, {"last", "@~2"}), ElementsAre("jobs/3", "jobs/1"));
  EXPECT_THAT(*ResolveSelectors(*link_, {"1-2,last", "3"}),
              ElementsAre("jobs/1", "jobs/2", "jobs/3"));
  EXPECT_EQ(ResolveSelectors(*link_, {"@~3"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ResolveOne(*link_, "1-2").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Resolve, AJobIsFoundByItsName) {
  server_.AddJob("convnet-glyphs", v1::JOB_STATE_SUCCEEDED);
  server_.AddJob("b", v1::JOB_STATE_QUEUED);
  EXPECT_THAT(*ResolveSelectors(*link_, {"b,convnet-glyphs", "2"}),
              ElementsAre("jobs/2", "jobs/1"));
  const auto unknown = ResolveOne(*link_, "convnet-glyps");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("no job is called 'convnet-glyps'; did you mean 'convnet-glyphs'?"));
}

TEST_F(Resolve, ANameThatSeveralJobsHaveIsToldWithThem) {
  server_.AddJob("a", v1::JOB_STATE_SUCCEEDED);
  server_.AddJob("a", v1::JOB_STATE_QUEUED);
  const auto job = ResolveOne(*link_, "a");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(job.status().message(),
            "2 jobs are called 'a'; write the number of one:\n"
            "  jobs/2 QUEUED\n  jobs/1 SUCCEEDED");
  for (int i = 0; i < 10; ++i) server_.AddJob("a", v1::JOB_STATE_QUEUED);
  EXPECT_THAT(std::string(ResolveOne(*link_, "a").status().message()),
              HasSubstr("more than 10 jobs are called 'a'"));
}

TEST_F(Resolve, WithoutJobsThereIsNoLastOne) {
  const auto names = ResolveSelectors(*link_, {"last"});
  EXPECT_EQ(names.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(names.status().message()), HasSubstr("trainyard submit"));
}

TEST_F(Resolve, AJobAloneNamesItsNewestCheckpoint) {
  const std::string job = server_.AddJob("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ResolveCheckpoint(*link_, "last").status().code(), absl::StatusCode::kNotFound);
  server_.AddCheckpoint(job, 90, {{"state.json", "{}"}});
  server_.AddCheckpoint(job, 600, {{"state.json", "{}"}});
  EXPECT_EQ(*ResolveCheckpoint(*link_, "last"), "jobs/1/checkpoints/600");
  EXPECT_EQ(*ResolveCheckpoint(*link_, "1/90"), "jobs/1/checkpoints/90");
  EXPECT_EQ(*ResolveCheckpoint(*link_, "jobs/1/90"), "jobs/1/checkpoints/90");
  EXPECT_EQ(*ResolveCheckpoint(*link_, "jobs/1/checkpoints/90"), "jobs/1/checkpoints/90");
  EXPECT_EQ(*ResolveCheckpoint(*link_, "1/latest"), "jobs/1/checkpoints/600");
  EXPECT_EQ(ResolveCheckpoint(*link_, "1/best").status().code(), absl::StatusCode::kNotFound);
  server_.AddCheckpoint(job, 90, {{"state.json", "{}"}}, /*is_best=*/true);
  EXPECT_EQ(*ResolveCheckpoint(*link_, "last/best"), "jobs/1/checkpoints/90");
  EXPECT_EQ(*ResolveCheckpoint(*link_, "jobs/1/checkpoints/best"), "jobs/1/checkpoints/90");
  EXPECT_EQ(ResolveCheckpoint(*link_, "1/x").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::commands
