#include "server/core/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;

Pool TwoCpus() {
  PoolWorker worker;
  worker.name = "lab-1";
  for (const char* name : {"cpu-0", "cpu-1"}) {
    PoolDevice device;
    device.name = name;
    device.type = "cpu";
    worker.devices.push_back(device);
  }
  return {worker};
}

TEST(Explain, SaysWhatIsNeededWhatIsFreeAndWhoHoldsTheRest) {
  Pool pool = TwoCpus();
  pool[0].devices[0].holder = JobId{3};
  EXPECT_THAT(PoolSummary(pool).WhyNot({2, "cpu", false}),
              ElementsAre("needs 2 devices of type cpu; 1 of 2 is free (jobs/3 holds 1)"));
}

TEST(Explain, SaysWhenItCanNeverStart) {
  EXPECT_THAT(PoolSummary(TwoCpus()).WhyNot({8, "", false}),
              ElementsAre("needs 8 devices; the pool has 2: it can never start here"));
  EXPECT_THAT(PoolSummary(TwoCpus()).WhyNot({1, "h200", false}),
              ElementsAre("needs 1 device of type h200; the pool has 0: it can never start here"));
}

TEST(Explain, SaysThatNoWorkerHasRegistered) {
  EXPECT_THAT(PoolSummary({}).WhyNot({1, "", false}),
              ElementsAre("needs 1 device", "no worker has registered"));
}

TEST(Explain, SaysWhatIsSetAside) {
  Pool pool = TwoCpus();
  pool[0].takes_ranks = false;
  pool[0].why_not = "is cordoned";
  EXPECT_THAT(PoolSummary(pool).WhyNot({1, "cpu", false}),
              ElementsAre("needs 1 device of type cpu; 0 of 2 are free",
                          "worker lab-1 is cordoned (2 devices)"));
  pool = TwoCpus();
  pool[0].devices[1].usable = false;
  pool[0].devices[1].why_not = "is quarantined: Xid 79";
  EXPECT_THAT(PoolSummary(pool).WhyNot({2, "cpu", false}),
              ElementsAre("needs 2 devices of type cpu; 1 of 2 is free",
                          "device cpu-1 of worker lab-1 is quarantined: Xid 79 (1 device)"));
}

TEST(Explain, NamesFiveHoldersAndCountsTheOthers) {
  PoolWorker worker;
  worker.name = "lab-1";
  for (int i = 0; i < 7; ++i) {
    PoolDevice device;
    device.name = absl::StrCat("cpu-", i);
    device.type = "cpu";
    device.holder = JobId{i + 1};
    worker.devices.push_back(device);
  }
  EXPECT_THAT(PoolSummary({worker}).WhyNot({1, "cpu", false}),
              ElementsAre("needs 1 device of type cpu; 0 of 7 are free (jobs/1 holds 1, jobs/2 "
                          "holds 1, jobs/3 holds 1, jobs/4 holds 1, jobs/5 holds 1, 2 more jobs "
                          "hold 2)"));
}

}  // namespace
}  // namespace trainyard::core
