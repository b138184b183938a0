#include "server/provision/lots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::provision {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST(LotsOf, JobsThatShareAPilotAreOneLot) {
  const Wanted gpu = {"gpu", 1, {{JobId{1}, {0}}, {JobId{2}, {1, 2}}, {JobId{3}, {0}}}};
  const std::vector<Lot> lots = LotsOf({gpu});
  ASSERT_THAT(lots, SizeIs(2));
  EXPECT_THAT(lots[0].pilots, ElementsAre(Pair("gpu", 1)));
  EXPECT_THAT(lots[1].pilots, ElementsAre(Pair("gpu", 2)));
}

TEST(LotsOf, WorkersOfOnePilotAreCountedOnce) {
  const Wanted gpu = {"gpu", 4, {{JobId{1}, {0, 1, 2, 3}}, {JobId{2}, {4}}}};
  const std::vector<Lot> lots = LotsOf({gpu});
  ASSERT_THAT(lots, SizeIs(2));
  EXPECT_THAT(lots[0].pilots, ElementsAre(Pair("gpu", 1)));
  EXPECT_THAT(lots[1].pilots, ElementsAre(Pair("gpu", 1)));
}

TEST(LotsOf, AnotherProviderMayTakeALotIfItTakesAllOfIt) {
  const Wanted first = {"first", 1, {{JobId{1}, {0}}, {JobId{2}, {0}}, {JobId{3}, {1}}}};
  const Wanted second = {"second", 1, {{JobId{1}, {0}}, {JobId{3}, {1, 2}}, {JobId{4}, {3}}}};
  const std::vector<Lot> lots = LotsOf({first, second});
  ASSERT_THAT(lots, SizeIs(3));
  EXPECT_THAT(lots[0].pilots, ElementsAre(Pair("first", 1))) << "jobs 1 and 2";
  EXPECT_THAT(lots[1].pilots, ElementsAre(Pair("first", 1), Pair("second", 2))) << "job 3";
  EXPECT_THAT(lots[2].pilots, ElementsAre(Pair("second", 1))) << "job 4";
}

TEST(LotsOf, NothingIsWantedOfNobody) {
  EXPECT_THAT(LotsOf({}), IsEmpty());
  EXPECT_THAT(LotsOf({{"gpu", 1, {}}}), IsEmpty());
}

}  // namespace
}  // namespace trainyard::provision
