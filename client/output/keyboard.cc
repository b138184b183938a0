// Switches the terminal to single keys and back.
#include "client/output/keyboard.h"

#include <poll.h>
#include <unistd.h>

namespace trainyard::output {

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
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) return 0;
  char key = 0;
  // At the end of the input, reading returns as if q had been pressed.
  return read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
}

}  // namespace trainyard::output
