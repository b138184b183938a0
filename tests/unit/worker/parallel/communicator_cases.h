// The cases that every communicator must pass. A test that links them instantiates the suites for
// its transports.
#pragma once

#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/unit/worker/parallel/gang.h"

namespace trainyard::parallel {

// The parameters are transport and world size.
class CommunicatorTest : public ::testing::TestWithParam<std::tuple<Transport, int>> {
 protected:
  Transport transport() const { return std::get<0>(GetParam()); }
  int world_size() const { return std::get<1>(GetParam()); }

  void ExpectAllOk(const RankWork& work) {
    for (const absl::Status& status : RunGang(transport(), world_size(), work)) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
};

// These are cases in which a rank does not do its part.
class CommunicatorFaultTest : public ::testing::TestWithParam<Transport> {};

// Cases for communicators that notice at once that a rank is gone.
class CommunicatorLossTest : public ::testing::TestWithParam<Transport> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorLossTest);

// These name the instances.
inline std::string NameOfSized(const ::testing::TestParamInfo<std::tuple<Transport, int>>& of) {
  return std::get<0>(of.param).name + "_" + std::to_string(std::get<1>(of.param));
}
inline std::string NameOf(const ::testing::TestParamInfo<Transport>& of) {
  return of.param.name;
}

}  // namespace trainyard::parallel
