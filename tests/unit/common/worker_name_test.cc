// Tests the rule that makes a worker's name from the name of its host.
#include "common/base/worker_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(WorkerName, KeepsTheDomainSoThatHostsOfTwoDomainsAreTwoWorkers) {
  EXPECT_EQ(WorkerNameOf("Lab-1.Example.ORG"), "lab-1-example-org");
  EXPECT_NE(WorkerNameOf("lab.one"), WorkerNameOf("lab.two"));
}

TEST(WorkerName, IsAlwaysOneThatAPoolTakes) {
  EXPECT_EQ(WorkerNameOf(""), "worker");
  EXPECT_EQ(WorkerNameOf("my_host"), "my-host");
  EXPECT_EQ(WorkerNameOf(std::string(200, 'x')), std::string(63, 'x'));
  EXPECT_THAT(WorkerNameOf(Hostname()), ::testing::MatchesRegex("[a-z0-9-]+"));
}

}  // namespace
}  // namespace trainyard
