// Tests that nobody waits for what hangs.
#include "client/doctor/examination.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/testing/wait.h"

namespace trainyard::doctor {
namespace {

TEST(Examination, OneThatHangsIsToldAndLeftAlone) {
  auto go_on = std::make_shared<absl::Notification>();
  const Examination examination("disks", [go_on] {
    go_on->WaitForNotification();
    return Findings{Ok("disk", "It answers.")};
  });
  EXPECT_FALSE(examination.is_over());
  const Findings early = examination.Take(absl::Seconds(20));
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].level, Level::kProblem);
  EXPECT_EQ(early[0].message, "Looking at this took longer than 20.0s.");

  go_on->Notify();
  EXPECT_TRUE(testing::WaitUntil([&] { return examination.is_over(); }));
  EXPECT_EQ(examination.Take(absl::Seconds(20)), Findings{Ok("disk", "It answers.")});
}

}  // namespace
}  // namespace trainyard::doctor
