// Reads single keys from the terminal at standard input.
#pragma once

#include <termios.h>

#include "absl/time/time.h"

namespace trainyard::output {

inline constexpr char kEscapeKey = '\x1b';
inline constexpr char kOtherKey = '\x01';

// While the object lives, keys arrive without Enter and are not echoed. Ctrl-C keeps its meaning.
class Keyboard {
 public:
  Keyboard();
  ~Keyboard();
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  // Returns the next key, or 0 if none comes in time. Keys that send more than one character, such
  // as the arrows, are read to their end and returned as kOtherKey.
  char Read(absl::Duration timeout);

 private:
  bool is_terminal_ = false;
  termios before_{};
};

}  // namespace trainyard::output
