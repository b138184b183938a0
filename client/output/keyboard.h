// Single keys from the terminal at standard input.
#pragma once

#include <termios.h>

#include "absl/time/time.h"

namespace trainyard::output {

// While it lives, keys come without Enter and are not echoed. Ctrl-C stays what it is.
class Keyboard {
 public:
  Keyboard();
  ~Keyboard();
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  // The next key, or 0 where none comes in time.
  char Read(absl::Duration timeout);

 private:
  bool is_terminal_ = false;
  termios before_{};
};

}  // namespace trainyard::output
