// Tests keys at a pseudo terminal that takes the place of standard input.
#include "client/output/keyboard.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <string>

namespace trainyard::output {
namespace {

class KeyboardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int slave = -1;
    ASSERT_EQ(openpty(&master_, &slave, nullptr, nullptr, nullptr), 0);
    before_ = dup(STDIN_FILENO);
    ASSERT_EQ(dup2(slave, STDIN_FILENO), STDIN_FILENO);
    close(slave);
  }
  void TearDown() override {
    dup2(before_, STDIN_FILENO);
    close(before_);
    close(master_);
  }
  void Press(const std::string& key) {
    ASSERT_EQ(write(master_, key.data(), key.size()), static_cast<ssize_t>(key.size()));
  }

  int master_ = -1;
  int before_ = -1;
};

TEST_F(KeyboardTest, AKeyOfSeveralCharactersIsOneKey) {
  Keyboard keyboard;
  for (const char* key : {"\x1b[B", "\x1b[6~", "\x1bOA"}) {
    Press(key);
    EXPECT_EQ(keyboard.Read(absl::Seconds(10)), kOtherKey);
    EXPECT_EQ(keyboard.Read(absl::ZeroDuration()), 0);
  }
}

TEST_F(KeyboardTest, EscapeAloneIsAKey) {
  Keyboard keyboard;
  Press("\x1b");
  EXPECT_EQ(keyboard.Read(absl::Seconds(10)), kEscapeKey);
  Press("q");
  EXPECT_EQ(keyboard.Read(absl::Seconds(10)), 'q');
}

}  // namespace
}  // namespace trainyard::output
