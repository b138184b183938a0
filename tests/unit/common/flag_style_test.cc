// Tests that flags may be written in two styles.
#include "common/base/flag_style.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

using ::testing::ElementsAre;

TEST(FlagStyle, OnlyTheNameOfALongFlagIsChanged) {
  EXPECT_EQ(FlagInStyle("--state_dir=/a_b", FlagStyle::kHyphens), "--state-dir=/a_b");
  EXPECT_EQ(FlagInStyle("--state-dir=/a-b", FlagStyle::kUnderscores), "--state_dir=/a-b");
  EXPECT_EQ(FlagInStyle("a_b", FlagStyle::kHyphens), "a_b");
  EXPECT_EQ(FlagInStyle("-a_b", FlagStyle::kHyphens), "-a_b");
  EXPECT_EQ(FlagInStyle("--", FlagStyle::kUnderscores), "--");
}

TEST(FlagStyle, WhatFollowsTwoDashesIsNoFlag) {
  EXPECT_THAT(FlagsInStyle({"--a_b", "c_d", "--", "--e_f"}, FlagStyle::kHyphens),
              ElementsAre("--a-b", "c_d", "--", "--e_f"));
}

TEST(FlagStyle, ArgumentsOfMainComeInReverseOrder) {
  char program[] = "x_y";
  char flag[] = "--log-format";
  char value[] = "json-x";
  char* argv[] = {program, flag, value};
  EXPECT_THAT(ReversedArgs(3, argv, FlagStyle::kUnderscores),
              ElementsAre("json-x", "--log_format"));
  EXPECT_TRUE(ReversedArgs(0, argv, FlagStyle::kUnderscores).empty());
}

}  // namespace
}  // namespace trainyard
