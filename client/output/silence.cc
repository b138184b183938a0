// Changes the terminal, and changes it back.
#include "client/output/silence.h"

#include <unistd.h>

namespace trainyard::output {

Silence::Silence() : is_terminal_(tcgetattr(STDIN_FILENO, &before_) == 0) {
  if (!is_terminal_) return;
  termios silent = before_;
  silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
}

Silence::~Silence() {
  if (is_terminal_) tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

}  // namespace trainyard::output
