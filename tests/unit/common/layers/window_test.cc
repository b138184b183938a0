#include "common/layers/window.h"

#include <gtest/gtest.h>

namespace trainyard::layers {
namespace {

// Counts by going over the input as a window does.
int64_t CountByHand(int64_t size, const Window& window) {
  int64_t count = 0;
  int64_t covered = -window.padding;
  for (int64_t begin = -window.padding;; begin += window.stride) {
    const int64_t end = begin + window.dilation * (window.kernel - 1) + 1;
    const bool fits = end <= size + window.padding;
    const bool sticks_out =
        window.ceil_mode && count > 0 && covered < size + window.padding && begin < size;
    if (!fits && !sticks_out) return count;
    ++count;
    if (!fits) return count;
    covered = end;
  }
}

TEST(Window, CountsAsAWalkOverTheInputDoes) {
  for (int64_t size = 1; size < 14; ++size) {
    for (int64_t kernel = 1; kernel < 5; ++kernel) {
      for (int64_t stride = 1; stride < 5; ++stride) {
        for (int64_t padding = 0; 2 * padding <= kernel; ++padding) {
          for (const bool ceil_mode : {false, true}) {
            const Window window = {
                .kernel = kernel, .stride = stride, .padding = padding, .ceil_mode = ceil_mode};
            EXPECT_EQ(WindowCount(size, window), CountByHand(size, window))
                << size << " " << kernel << " " << stride << " " << padding << " " << ceil_mode;
          }
        }
        const Window dilated = {.kernel = kernel, .stride = stride, .padding = 1, .dilation = 2};
        EXPECT_EQ(WindowCount(size, dilated), CountByHand(size, dilated));
      }
    }
  }
}

TEST(Window, OneThatDoesNotFitIsNone) {
  EXPECT_EQ(WindowCount(4, {.kernel = 5}), 0);
  EXPECT_EQ(WindowCount(4, {.kernel = 3, .dilation = 2}), 0);
  EXPECT_EQ(WindowCount(4, {.kernel = 5, .stride = 2, .ceil_mode = true}), 0);
}

}  // namespace
}  // namespace trainyard::layers
