// Describes what can be shown: colours, characters beyond ASCII, lines that are redrawn in place.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/columns.h"

namespace trainyard::output {

struct Terminal {
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool color = false;
  // True if block and braille characters can be shown.
  bool unicode = false;
  // The columns of stderr, or 80.
  int width = 80;
  // The lines of stderr, or 24.
  int height = 24;

  // Returns `text` in an ANSI style ("1" bold, "31" red, ...), or unchanged if there are no
  // colours. The style is written with kEscape.
  std::string Style(absl::string_view code, absl::string_view text) const;
};

struct TerminalSettings {
  bool no_color = false;
  std::string term;           // $TERM
  std::string locale;         // the first of $LC_ALL, $LC_CTYPE, $LANG that is set
  bool has_no_color = false;  // $NO_COLOR is set and not empty
};

// Looks at the file descriptors 1 and 2.
Terminal DetectTerminal(const TerminalSettings& settings);
// Returns the terminal with its present size, which changes with the window.
Terminal Resized(Terminal terminal);

// Moves to the start of the line, so that it can be drawn again, and clears what is right of the
// cursor.
inline constexpr absl::string_view kLineStart = "\xff[G";
inline constexpr absl::string_view kClearRest = "\xff[K";

using trainyard::DisplayWidth;

}  // namespace trainyard::output
