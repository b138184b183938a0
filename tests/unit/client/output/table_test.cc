// Tests the layout of tables.
#include "client/output/table.h"

#include <gtest/gtest.h>

#include "client/output/terminal.h"

namespace trainyard::output {
namespace {

TEST(Table, ColumnsAreAlignedAndNoLineEndsInSpaces) {
  Table table({{"JOB", Table::Align::kRight}, {"NAME"}, {"STATE"}});
  table.AddRow({"7", "a", "RUNNING"});
  table.AddRow({"12", "gl\xc3\xbcgel", ""});
  EXPECT_EQ(table.Render(),
            "JOB  NAME    STATE\n"
            "  7  a       RUNNING\n"
            " 12  gl\xc3\xbcgel  -\n");
}

TEST(Table, StylesTakeNoRoom) {
  Terminal terminal;
  terminal.color = true;
  Table table({{"STATE"}, {"AGE"}});
  table.AddRow({terminal.Style("32", "OK"), "1s"});
  EXPECT_EQ(table.Render(), "STATE  AGE\n\xff[32mOK\xff[0m     1s\n");
  EXPECT_EQ(DisplayWidth("\xff[1;31mab\xff[0m"), 2);
}

TEST(Table, LineBreaksInACellMakeNoLines) {
  Table table({{"WHY"}});
  table.AddRow({"a\nb\tc"});
  EXPECT_EQ(table.Render(), "WHY\na\\nb\\tc\n");
}

TEST(Table, WithoutRowsOnlyTheHeaderIsLeft) {
  EXPECT_EQ(Table({{"A"}, {"B"}}).Render(), "A  B\n");
}

}  // namespace
}  // namespace trainyard::output
