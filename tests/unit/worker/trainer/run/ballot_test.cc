// Tests the conversion of ballots to numbers and back, and the results of votes.
#include "worker/trainer/run/ballot.h"

#include "gtest/gtest.h"

namespace trainyard::trainer {
namespace {

std::vector<Ballot> Gather(const std::vector<Ballot>& cast) {
  std::vector<double> values;
  for (const Ballot& ballot : cast) {
    const auto encoded = EncodeBallot(ballot);
    values.insert(values.end(), encoded.begin(), encoded.end());
  }
  return DecodeBallots(values);
}

TEST(Ballot, ComesBackAsItWasCast) {
  const std::vector<Ballot> cast = {{.votes = {.stop = true},
                                     .skipped = 3,
                                     .computed_step = 7,
                                     .computed_rows = 64,
                                     .compute_seconds = 0.125},
                                    {.votes = {.checkpoint = true, .evaluate = true},
                                     .skipped = int64_t{1} << 40,
                                     .diverged_step = 9},
                                    {}};
  EXPECT_EQ(Gather(cast), cast);
}

TEST(Ballot, WhatOneRankWantsAllDo) {
  const std::vector<Ballot> cast = {{}, {.votes = {.stop = true}}, {.votes = {.checkpoint = true}}};
  EXPECT_EQ(AgreedVotes(cast), (Votes{.stop = true, .checkpoint = true}));
  EXPECT_EQ(AgreedVotes({}), Votes{});
}

TEST(Ballot, WhatOneRankSawDivergeEndsAll) {
  EXPECT_EQ(DivergedStep(Gather({{}, {.diverged_step = 3}, {.diverged_step = 2}, {}})), 2);
  EXPECT_EQ(DivergedStep(Gather({{}, {.computed_rows = 4}})), 0);
}

TEST(Ballot, WithoutVotesNothingIsDecided) {
  EXPECT_EQ(AgreedVotes(Gather({{}, {}})), Votes{});
}

TEST(Ballot, SkippedSamplesAreCountedOverAllRanks) {
  EXPECT_EQ(SkippedSamples(Gather({{.skipped = 2}, {}, {.skipped = 5}})), 7);
}

}  // namespace
}  // namespace trainyard::trainer
