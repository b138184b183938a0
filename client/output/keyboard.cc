// Switches the terminal to single keys and back.
#include "client/output/keyboard.h"

#include <poll.h>
#include <unistd.h>

namespace trainyard::output {
namespace {

// The characters of one key come at once, also through ssh. A person is slower.
constexpr absl::Duration kSequenceWait = absl::Milliseconds(20);

bool HasInput(absl::Duration timeout) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
}

}  // namespace

Keyboard::Keyboard() {
  is_terminal_ = tcgetattr(STDIN_FILENO, &before_) == 0;
  if (!is_terminal_) return;
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

Keyboard::~Keyboard() {
  if (is_terminal_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

char Keyboard::Read(absl::Duration timeout) {
  if (!HasInput(timeout)) return 0;
  char key = 0;
  // At the end of the input, reading returns as if q had been pressed.
  if (read(STDIN_FILENO, &key, 1) != 1) return 'q';
  if (key != kEscapeKey || !HasInput(kSequenceWait)) return key;
  char rest = 0;
  while (HasInput(absl::ZeroDuration()) && read(STDIN_FILENO, &rest, 1) == 1) {
  }
  return kOtherKey;
}

}  // namespace trainyard::output
