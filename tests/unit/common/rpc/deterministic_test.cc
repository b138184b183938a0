// Tests that equal messages give equal bytes.
#include "common/rpc/deterministic.h"

#include <gtest/gtest.h>

#include <string>

#include "trainyard/v1/spec.pb.h"

namespace trainyard::rpc {
namespace {

TEST(DeterministicBytes, AreThoseOfTheContentWhateverTheOrderOfItsMaps) {
  v1::JobSpec forth;
  v1::JobSpec back;
  for (int i = 0; i < 100; ++i) {
    (*forth.mutable_program()->mutable_params())["p" + std::to_string(i)] = "x";
    (*back.mutable_program()->mutable_params())["p" + std::to_string(99 - i)] = "x";
  }
  EXPECT_EQ(DeterministicBytes(forth), DeterministicBytes(back));
  v1::JobSpec read;
  ASSERT_TRUE(read.ParseFromString(DeterministicBytes(forth)));
  EXPECT_EQ(read.program().params_size(), 100);
  (*back.mutable_program()->mutable_params())["p0"] = "y";
  EXPECT_NE(DeterministicBytes(forth), DeterministicBytes(back));
}

}  // namespace
}  // namespace trainyard::rpc
