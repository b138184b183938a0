#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/provision/slurm/slurm.h"

namespace trainyard::provision::slurm {
namespace {

using ::testing::ElementsAre;

TEST(SlurmEnvironment, VariablesThatChangeSlurmAreDropped) {
  EXPECT_THAT(CleanEnvironment({"PATH=/bin", "SQUEUE_FORMAT=%i", "SLURM_CLUSTERS=x",
                                "SLURM_CONF=/etc/slurm.conf", "SBATCH_ACCOUNT=a", "HOME=/root",
                                "TRAINYARD_SECRET=s"}),
              ElementsAre("PATH=/bin", "SLURM_CONF=/etc/slurm.conf", "HOME=/root"));
}

}  // namespace
}  // namespace trainyard::provision::slurm
