// Tests the predictor against numbers worked out by hand.
#include "client/scaling/predictor.h"

#include <gtest/gtest.h>

namespace trainyard::scaling {
namespace {

constexpr double kMega = 1e6;

// 80 ms of computation, 2 ms beside it, 100 MB of gradients over a line of 10 GB/s.
Costs Sample() {
  Costs costs;
  costs.compute_seconds = 0.080;
  costs.fixed_seconds = 0.002;
  costs.gradient_bytes = 100 * kMega;
  costs.link_bytes_per_s = 10'000 * kMega;
  costs.replicas = 8;
  return costs;
}

TEST(Predictor, OneDeviceTakesWhatItTook) {
  EXPECT_DOUBLE_EQ(Predict(Sample(), 1)->step_seconds, 0.082);
  EXPECT_EQ(Predict(Sample(), 1)->comm_seconds, 0);
}

TEST(Predictor, CommunicationThatFitsBehindBackwardCostsNothing) {
  // Backward on 2 devices: 2/3 of 40 ms; 2 * 1/2 * 100 MB at 10 GB/s: 10 ms.
  const auto two = Predict(Sample(), 2);
  EXPECT_DOUBLE_EQ(two->comm_seconds, 0.010);
  EXPECT_EQ(two->exposed_seconds, 0);
  EXPECT_DOUBLE_EQ(two->step_seconds, 0.042);
}

TEST(Predictor, WhatDoesNotFitIsExposed) {
  // 8 devices: backward 6.67 ms, communication 2 * 7/8 * 10 = 17.5 ms.
  const auto eight = Predict(Sample(), 8);
  EXPECT_DOUBLE_EQ(eight->comm_seconds, 0.0175);
  EXPECT_NEAR(eight->exposed_seconds, 0.0175 - 0.010 * 2 / 3, 1e-12);
  EXPECT_NEAR(eight->step_seconds, 0.002 + 0.010 + eight->exposed_seconds, 1e-12);
}

TEST(Predictor, RanksWaitForEachOtherInProportionToTheComputation) {
  Costs costs = Sample();
  costs.wait_share = 0.1;
  EXPECT_DOUBLE_EQ(Predict(costs, 2)->exposed_seconds, 0.004);
  EXPECT_DOUBLE_EQ(Predict(costs, 1)->exposed_seconds, 0);
}

TEST(Predictor, ReplicasThatDoNotDivideEvenlyLeaveDevicesWaiting) {
  // 8 replicas on 3 devices: the slowest has 3.
  EXPECT_DOUBLE_EQ(Predict(Sample(), 3)->compute_seconds, 0.080 * 3 / 8);
  EXPECT_FALSE(Predict(Sample(), 9).has_value());
  EXPECT_FALSE(Predict(Sample(), 0).has_value());
}

TEST(Predictor, MoreDevicesNeverComputeLonger) {
  for (int devices = 2; devices <= 8; ++devices) {
    EXPECT_LE(Predict(Sample(), devices)->compute_seconds,
              Predict(Sample(), devices - 1)->compute_seconds);
  }
}

TEST(Costs, ComeFromOneDeviceAndTheFewestOfSeveral) {
  Measurement one;
  one.devices = 1;
  one.step_seconds = 0.082;
  one.compute_seconds = 0.080;
  Measurement four;
  four.devices = 4;
  four.step_seconds = 0.03;
  four.comm_seconds = 1;
  four.comm_bytes = 1;
  four.link_bytes_per_s = 1;
  Measurement two;
  two.devices = 2;
  two.step_seconds = 0.05;
  two.comm_seconds = 0.010;
  two.exposed_seconds = 0.004;
  two.link_bytes_per_s = 20'000 * kMega;
  two.comm_bytes = 100 * kMega;
  const auto costs = CostsOf({one, four, two}, 8);
  ASSERT_TRUE(costs.has_value());
  EXPECT_DOUBLE_EQ(costs->compute_seconds, 0.080);
  EXPECT_NEAR(costs->fixed_seconds, 0.002, 1e-12);
  EXPECT_DOUBLE_EQ(costs->gradient_bytes, 100 * kMega);
  EXPECT_DOUBLE_EQ(costs->link_bytes_per_s, 20'000 * kMega);
  EXPECT_NEAR(costs->wait_share, 0.1, 1e-12);
  EXPECT_NEAR(Predict(*costs, 2)->step_seconds, 0.002 + 0.040 + 0.004, 1e-12);
  EXPECT_FALSE(CostsOf({two, four}, 8).has_value());
}

TEST(Costs, WithoutReportsOfComputationTheWholeStepIsComputation) {
  Measurement one;
  one.devices = 1;
  one.step_seconds = 0.082;
  const auto costs = CostsOf({one}, 4);
  EXPECT_DOUBLE_EQ(costs->compute_seconds, 0.082);
  EXPECT_EQ(costs->fixed_seconds, 0);
  EXPECT_DOUBLE_EQ(Predict(*costs, 4)->step_seconds, 0.082 / 4);
}

}  // namespace
}  // namespace trainyard::scaling
