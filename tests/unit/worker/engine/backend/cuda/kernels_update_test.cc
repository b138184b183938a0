// Tests that the update on the device changes each parameter like the reference, and its other
// promises: packed copies, running statistics, cleared sums, and its report to the host.
#include "worker/engine/backend/cuda/kernels/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/worker/engine/backend/cuda/update_testing.h"

namespace trainyard::engine::cuda::testing {
namespace {

// One launch for SGD and AdamW, two for LAMB, and one more where gradients are surveyed first.
int64_t ExpectedLaunches(const OptimizerSpec& spec, bool has_loss_scale) {
  const bool is_surveyed = spec.clip_norm > 0 || spec.rule == Rule::kLars || has_loss_scale;
  return (spec.rule == Rule::kLamb ? 2 : 1) + (is_surveyed ? 1 : 0);
}

TEST(Update, DoesWhatTheReferenceDoesOverSeveralSteps) {
  for (const Named& named : AllSpecs()) {
    for (const float scale : {0.0F, 1024.0F}) {
      SCOPED_TRACE(std::string(RuleName(named.spec.rule)) + ", " + named.name +
                   (scale > 0 ? ", scaled" : ""));
      Device device(named.spec, scale);
      Host host{named.spec};
      for (uint64_t step = 0; step < 4; ++step) {
        const float lr = 0.05F / static_cast<float>(step + 1);
        const Floats statistics = RandomStatistics(20 + step);
        const int64_t launches = LaunchesSoFar();
        device.Run(lr, RandomGradients(10 + step, scale > 0 ? scale : 1), statistics, 2.5F, 0.75F);
        host.Run(static_cast<double>(lr), RandomGradients(10 + step, 1), statistics);
        const StepResult result = device.result();
        if (LaunchesSoFar() > 0) {
          EXPECT_EQ(LaunchesSoFar() - launches, ExpectedLaunches(named.spec, scale > 0));
        }
        EXPECT_EQ(result.loss, 2.5F);
        EXPECT_EQ(result.accuracy, 0.75F);
        EXPECT_EQ(result.not_finite, 0U);
        EXPECT_EQ(result.skipped, 0U);
        device.ExpectSumsCleared();
        device.ExpectPacked(true);
      }
      ExpectNear(OfParameters(device.parameters()), OfParameters(host.parameters), 2e-6, "weights");
      ExpectNear(OfParameters(device.slots()), OfParameters(host.slots), 2e-6, "slots");
      ExpectNear(device.running(), host.running, 1e-6, "running statistics");
      EXPECT_EQ(device.count(), CountsSteps(named.spec) ? 4 : 0);
      if (named.spec.ema_decay > 0) {
        // The averages are NaN at first, since the first update must not read them.
        host.averages.resize(kElements);
        ExpectNear(OfParameters(device.averages()), OfParameters(host.averages), 2e-6, "averages");
      }
    }
  }
}

TEST(Update, GoesOnFromTheCountOfACheckpoint) {
  for (const Rule rule : {Rule::kAdamW, Rule::kLamb}) {
    OptimizerSpec spec;
    spec.rule = rule;
    spec.ema_decay = 0.99;
    Device device(spec);
    Host host{spec};
    for (const int64_t count : {int64_t{0}, int64_t{700}, kMaxCountedSteps}) {
      device.set_count(static_cast<float>(count));
      host.count = count;
      for (uint64_t step = 0; step < 2; ++step) {
        device.Run(0.01F, RandomGradients(30 + step, 1), RandomStatistics(3), 1, 1);
        host.Run(0.01, RandomGradients(30 + step, 1), RandomStatistics(3));
      }
      EXPECT_EQ(device.count(), static_cast<float>(std::min(count + 2, kMaxCountedSteps)));
    }
    ExpectNear(OfParameters(device.parameters()), OfParameters(host.parameters), 2e-6, "weights");
  }
}

TEST(Update, GivesTheSameBitsInAnyOrderOfThreads) {
  for (const Named& named : AllSpecs()) {
    std::vector<Floats> results[2];
    for (uint64_t order = 0; order < 2; ++order) {
      ShuffleDevice(100 + order);
      Device device(named.spec);
      device.Run(0.01F, RandomGradients(4, 1), RandomStatistics(5), 1, 1);
      device.Run(0.01F, RandomGradients(5, 1), RandomStatistics(6), 1, 1);
      results[order] = {device.parameters(), device.slots(), device.running()};
    }
    EXPECT_EQ(results[0], results[1]) << RuleName(named.spec.rule) << named.name;
  }
}

TEST(Exchange, SwapsAllElements) {
  for (const int64_t count : {1, 7, 4096, 50001}) {
    const Floats a = RandomFloats(1, count);
    const Floats b = RandomFloats(2, count);
    const DeviceArray<float> on_device_a(a);
    const DeviceArray<float> on_device_b(b);
    Exchange(on_device_a.data(), on_device_b.data(), count, nullptr);
    EXPECT_EQ(on_device_a.Read(), b);
    EXPECT_EQ(on_device_b.Read(), a);
  }
}

TEST(Bf16, IsTheNearestValueAndComesBackAsItWas) {
  for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{4096}, int64_t{70001}}) {
    // Arrays that begin anywhere are converted element by element.
    for (const int64_t offset : {0, 1}) {
      const std::vector<float> values = testing::RandomFloats(5, count + offset);
      const DeviceArray<float> from(values), back(std::vector<float>(values.size(), 9));
      const DeviceArray<uint16_t> halves(std::vector<uint16_t>(values.size(), 0));
      ToBf16(from.data() + offset, halves.data() + offset, count, nullptr);
      FromBf16(halves.data() + offset, back.data() + offset, count, nullptr);
      std::vector<float> expected = testing::Rounded(values, Type::kBf16);
      if (offset == 1) expected[0] = 9;
      EXPECT_EQ(back.Read(), expected) << count << " from " << offset;
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda::testing
