// Keeps a terminal from showing what is typed, such as a token or a password.
#pragma once

#include <termios.h>

namespace trainyard::output {

// While the object lives, the terminal of the standard input echoes nothing.
class Silence {
 public:
  Silence();
  ~Silence();
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  termios before_{};
  const bool is_terminal_;
};

}  // namespace trainyard::output
