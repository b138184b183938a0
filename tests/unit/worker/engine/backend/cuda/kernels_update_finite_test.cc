// Tests gradients that are not finite: the update reports them, and is left out if there is a loss
// scale.
#include "worker/engine/backend/cuda/kernels/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/unit/worker/engine/backend/cuda/update_testing.h"

namespace trainyard::engine::cuda::testing {
namespace {

TEST(Update, TellsOfEachGradientThatIsNotFinite) {
  for (const Named& named : AllSpecs()) {
    Device device(named.spec);
    const std::pair<int64_t, float> cases[] = {
        {5000, kNan}, {14818, kInfinity}, {kElements - 8, -kInfinity}};
    for (const auto& [at, bad] : cases) {
      Floats gradients = RandomGradients(4, 1);
      gradients[static_cast<size_t>(at)] = bad;
      device.Run(0.01F, gradients, RandomStatistics(5), 1, 1);
      EXPECT_EQ(device.result().not_finite, 1U) << RuleName(named.spec.rule) << named.name << at;
      EXPECT_EQ(device.result().skipped, 0U);
      EXPECT_EQ(device.result().loss, 1.0F);
      device.ExpectSumsCleared();
      device.Run(0.01F, RandomGradients(6, 1), RandomStatistics(5), 1, 1);
      EXPECT_EQ(device.result().not_finite, 0U) << RuleName(named.spec.rule) << named.name << at;
    }
  }
}

TEST(Update, TellsOfALossThatIsNotFinite) {
  Device device(OptimizerSpec{});
  device.Run(0.01F, RandomGradients(4, 1), RandomStatistics(5), kNan, 1);
  EXPECT_EQ(device.result().not_finite, 1U);
  EXPECT_TRUE(std::isnan(device.result().loss));
}

TEST(Update, SkipsAllButTheScaleWhereScaledGradientsOverflow) {
  for (const Named& named : AllSpecs()) {
    SCOPED_TRACE(std::string(RuleName(named.spec.rule)) + ", " + named.name);
    Device device(named.spec, 512);
    Floats gradients = RandomGradients(4, 512);
    gradients[9650] = kInfinity;
    const Floats slots = device.slots();
    device.Run(0.01F, gradients, RandomStatistics(5), 3, 0.5F);
    const StepResult result = device.result();
    EXPECT_EQ(result.not_finite, 1U);
    EXPECT_EQ(result.skipped, 1U);
    EXPECT_EQ(result.loss, 3);
    EXPECT_EQ(device.parameters(), RandomFloats(1, kElements));
    EXPECT_EQ(device.running(), RandomFloats(2, kStatistics));
    EXPECT_EQ(device.slots(), slots);
    EXPECT_EQ(device.count(), 0);
    EXPECT_EQ(device.scale().scale, 256);
    EXPECT_EQ(device.scale().good_steps, 0);
    device.ExpectSumsCleared();
    device.ExpectPacked(false);

    // The next update continues as if nothing had happened.
    Host host{named.spec};
    device.Run(0.01F, RandomGradients(6, 256), RandomStatistics(5), 1, 1);
    host.Run(static_cast<double>(0.01F), RandomGradients(6, 1), RandomStatistics(5));
    EXPECT_EQ(device.result().skipped, 0U);
    EXPECT_EQ(device.scale().good_steps, 1);
    ExpectNear(OfParameters(device.parameters()), OfParameters(host.parameters), 2e-6, "weights");
    device.ExpectPacked(true);
  }
}

TEST(Update, DoublesTheLossScaleAfterManyGoodUpdates) {
  Device device(OptimizerSpec{}, 1);
  const auto run_from = [&](LossScale scale, float factor) {
    device.set_scale(scale);
    device.Run(0.01F, RandomGradients(4, factor), RandomStatistics(5), 1, 1);
    return device.scale();
  };
  LossScale scale = run_from({1024, kLossScaleGrowth - 2}, 1);
  EXPECT_EQ(scale.scale, 1024);
  EXPECT_EQ(scale.good_steps, kLossScaleGrowth - 1);
  scale = run_from(scale, 1);
  EXPECT_EQ(scale.scale, 2048);
  EXPECT_EQ(scale.good_steps, 0);
  EXPECT_EQ(run_from({kLossScaleMax, kLossScaleGrowth - 1}, 1).scale, kLossScaleMax);
  EXPECT_EQ(run_from({2 * kLossScaleMin, 0}, kInfinity).scale, kLossScaleMin);
  EXPECT_EQ(run_from({kLossScaleMin, 0}, kInfinity).scale, kLossScaleMin);
}

}  // namespace
}  // namespace trainyard::engine::cuda::testing
