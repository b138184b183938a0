// Tests which values of a metric count at which rung.
#include "server/sweeps/objective_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/store/memory_metrics_store.h"

namespace trainyard::sweeps {
namespace {

class ObjectiveWatchTest : public ::testing::Test {
 protected:
  void Tell(int64_t step, double value, const std::string& name = "loss") {
    ASSERT_TRUE(
        store_.AppendPoints({JobId{1}, 1}, 0, offset_, {{step, name, value, 0}}, offset_ + 1).ok());
    ++offset_;
  }
  void Read(int64_t total_steps = 100) {
    ASSERT_TRUE(watch_.Read(store_, "loss", total_steps).ok());
  }

  store::MemoryMetricsStore store_;
  ObjectiveWatch watch_{JobId{1}, {1.0 / 3, 1}};
  int64_t offset_ = 0;
};

TEST_F(ObjectiveWatchTest, TheFirstValueAtOrBehindARungCounts) {
  Tell(33, 5);
  Tell(34, 4);
  Tell(40, 3);
  Read(0);
  EXPECT_FALSE(watch_.At(0).has_value()) << "the length is not known";
  Read();
  ASSERT_TRUE(watch_.At(0).has_value());
  EXPECT_EQ(watch_.At(0)->step, 34) << "33 steps are less than a third of 100";
  EXPECT_EQ(watch_.At(0)->value, 4);
  EXPECT_FALSE(watch_.At(1).has_value());
  EXPECT_FALSE(watch_.At(2).has_value()) << "there is no such rung";
  EXPECT_EQ(watch_.last()->step, 40);
  Tell(100, 2);
  Tell(120, 1);
  Read();
  EXPECT_EQ(watch_.At(0)->step, 34);
  EXPECT_EQ(watch_.At(1)->step, 100);
}

TEST_F(ObjectiveWatchTest, OtherMetricsDoNotCountAndNoNumberDoes) {
  Tell(50, 1, "accuracy");
  Read();
  EXPECT_FALSE(watch_.At(0).has_value());
  Tell(60, std::numeric_limits<double>::quiet_NaN());
  Read();
  ASSERT_TRUE(watch_.At(0).has_value());
  EXPECT_TRUE(std::isnan(watch_.At(0)->value));
}

TEST_F(ObjectiveWatchTest, TheLastValueOfAJobThatHasEndedNeedsNoLength) {
  ASSERT_TRUE(watch_.ReadLast(store_, "loss").ok());
  EXPECT_FALSE(watch_.last().has_value());
  for (int64_t step = 1; step <= 20; ++step) Tell(step, static_cast<double>(step));
  ASSERT_TRUE(watch_.ReadLast(store_, "loss").ok());
  ASSERT_TRUE(watch_.last().has_value());
  EXPECT_EQ(watch_.last()->step, 20);
}

}  // namespace
}  // namespace trainyard::sweeps
