#include "common/base/in_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

TEST(InParallel, EachNumberComesOnce) {
  for (const size_t parallel : {size_t{0}, size_t{1}, size_t{3}, size_t{100}}) {
    std::vector<std::atomic<int>> calls(20);
    EXPECT_TRUE(InParallel(calls.size(), parallel, [&](size_t i) {
                  ++calls[i];
                  return absl::OkStatus();
                }).ok());
    for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1) << parallel;
  }
  EXPECT_TRUE(InParallel(0, 4, [](size_t) { return absl::InternalError("no call"); }).ok());
}

TEST(InParallel, NothingBeginsAfterAFailure) {
  int calls = 0;
  const absl::Status status = InParallel(100, 1, [&](size_t i) {
    ++calls;
    return i < 4 ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("call ", i));
  });
  EXPECT_EQ(status, absl::UnavailableError("call 4"));
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace trainyard
