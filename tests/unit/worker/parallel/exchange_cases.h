// Declares the cases that every gradient exchange must pass. A test that links them instantiates
// the suites for its exchanges.
#pragma once

#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/unit/worker/parallel/exchange_setup.h"

namespace trainyard::parallel {

// The parameters are kind, world size, and whether it is sharded.
class ExchangeTest : public ::testing::TestWithParam<std::tuple<ExchangeKind, int, bool>> {};
// These are cases in which ranks disagree, or one does not do its part.
class ExchangeFaultTest : public ::testing::TestWithParam<ExchangeKind> {};

// These name the instances.
inline std::string NameOfExchange(
    const ::testing::TestParamInfo<std::tuple<ExchangeKind, int, bool>>& of) {
  return std::get<0>(of.param).name + "_" + std::to_string(std::get<1>(of.param)) +
         (std::get<2>(of.param) ? "_sharded" : "");
}
inline std::string NameOfExchangeKind(const ::testing::TestParamInfo<ExchangeKind>& of) {
  return of.param.name;
}

}  // namespace trainyard::parallel
