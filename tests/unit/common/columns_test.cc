#include "common/base/columns.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(Columns, AreAlignedWithoutSpacesAtTheEnd) {
  EXPECT_EQ(AlignColumns({{"a", "1", "x"}, {"long", "100", ""}}, "lrl"),
            "a       1  x\nlong  100\n");
}

TEST(Columns, CountCharactersAndNotBytes) {
  EXPECT_EQ(AlignColumns({{"gl\xc3\xbcgel", "1"}, {"a", "12"}}, "lr"),
            "gl\xc3\xbcgel   1\na       12\n");
}

TEST(Columns, GiveStylesNoRoom) {
  EXPECT_EQ(DisplayWidth("\xff[1;31mab\xff[0m"), 2);
}

}  // namespace
}  // namespace trainyard
