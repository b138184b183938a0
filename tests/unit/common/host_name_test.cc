// The rule by which a host's worker is named.
#include "common/base/host_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(HostName, AWorkerIsCalledAsTheHostWithoutItsDomain) {
  EXPECT_EQ(WorkerNameOfHost("lab-1"), "lab-1");
  EXPECT_EQ(WorkerNameOfHost("lab-1.example.org"), "lab-1");
}

TEST(HostName, WhatAWorkerMayNotBeCalledBecomesADash) {
  EXPECT_EQ(WorkerNameOfHost("Lab_1"), "lab-1");
}

TEST(HostName, AHostWithoutANameHasAWorker) {
  EXPECT_EQ(WorkerNameOfHost(""), "worker");
  EXPECT_EQ(WorkerNameOfHost(".example.org"), "worker");
}

TEST(HostName, LongNamesAreCut) {
  EXPECT_EQ(WorkerNameOfHost(std::string(200, 'a')), std::string(63, 'a'));
}

TEST(HostName, ThisHostGivesAPlainName) {
  EXPECT_THAT(WorkerNameOfHost(HostName()), ::testing::MatchesRegex("[a-z0-9-]{1,63}"));
}

}  // namespace
}  // namespace trainyard
