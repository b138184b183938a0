#include "server/access/removed_workers.h"

#include <gtest/gtest.h>

#include "common/base/errors.h"

namespace trainyard::access {
namespace {

const absl::Time kThen = absl::FromUnixSeconds(1'800'000'000);

TEST(RemovedWorkers, RefuseWhatBeganBeforeTheRemovalAlone) {
  RemovedWorkers workers;
  EXPECT_TRUE(workers.Check("gpu-1", absl::InfinitePast()).ok());
  const RemovedWorker removed = workers.Remove("gpu-1", kThen + absl::Milliseconds(700));
  EXPECT_EQ(removed, (RemovedWorker{"gpu-1", kThen}));
  const absl::Status refused = workers.Check("gpu-1", kThen - absl::Seconds(1));
  EXPECT_TRUE(absl::IsUnauthenticated(refused));
  EXPECT_EQ(ErrorReason(refused), "CERTIFICATE_REVOKED");
  EXPECT_TRUE(workers.Check("gpu-1", workers.EarliestBegin("gpu-1")).ok());
  EXPECT_TRUE(workers.Check("gpu-2", kThen - absl::Hours(24)).ok());
}

TEST(RemovedWorkers, ASecondRemovalRefusesWhatWasMadeAfterTheFirst) {
  RemovedWorkers workers;
  workers.Remove("gpu-1", kThen);
  const absl::Time made_after = workers.EarliestBegin("gpu-1");
  workers.Remove("gpu-1", kThen);
  EXPECT_FALSE(workers.Check("gpu-1", made_after).ok());
  // The clock was set back in between.
  const absl::Time made_then = workers.EarliestBegin("gpu-1");
  workers.Remove("gpu-1", kThen - absl::Hours(1));
  EXPECT_FALSE(workers.Check("gpu-1", made_then).ok());
}

TEST(RemovedWorkers, AreKnownAgainAfterARestart) {
  RemovedWorkers before;
  const RemovedWorker stored = before.Remove("gpu-1", kThen);
  RemovedWorkers after;
  after.Add(stored);
  EXPECT_FALSE(after.Check("gpu-1", kThen - absl::Hours(24)).ok());
}

}  // namespace
}  // namespace trainyard::access
