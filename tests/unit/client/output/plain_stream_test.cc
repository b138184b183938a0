// Tests what reaches a terminal.
#include "client/output/plain_stream.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "common/base/escape.h"

namespace trainyard::output {
namespace {

std::string Printed(const std::string& text) {
  std::ostringstream out;
  PlainStream plain(out);
  plain << text << std::flush;
  return out.str();
}

TEST(PlainStream, ControlCharactersAreWrittenAsText) {
  EXPECT_EQ(Printed("a\x1b[31mb\rc\x7f"), "a\\u001b[31mb\\u000dc\\u007f");
  EXPECT_EQ(Printed(std::string("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(Printed("\xc2\x9b[31m"), "\\u009b[31m");
}

TEST(PlainStream, TextStaysAsItIs) {
  const std::string text = "col\tumn\nFl\xc3\xbcgel \xc2\xa0\xc2\xb5 \xe2\x96\x88";
  EXPECT_EQ(Printed(text), text);
}

TEST(PlainStream, OnlyItsOwnMarkBecomesAnEscape) {
  EXPECT_EQ(Printed(std::string(1, kEscape) + "[1mbold"), "\x1b[1mbold");
  EXPECT_EQ(Printed(WithoutEscapes(std::string(1, kEscape) + "[1m")), "?[1m");
}

TEST(PlainStream, CharactersMayComeOneByOne) {
  std::ostringstream out;
  PlainStream plain(out);
  for (const char c : std::string("\xc2\x9b\xc2\xb5\x1b")) plain.put(c);
  plain << std::flush;
  EXPECT_EQ(out.str(), "\\u009b\xc2\xb5\\u001b");
}

TEST(PlainStream, AWriteThatFailsIsRemembered) {
  std::ofstream full("/dev/full");
  ASSERT_TRUE(full.is_open());
  PlainStream plain(full);
  plain << "text" << std::flush;
  EXPECT_EQ(plain.error(), ENOSPC);
  EXPECT_FALSE(plain.good());
}

}  // namespace
}  // namespace trainyard::output
