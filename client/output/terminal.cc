// Finds out what the terminal can show.
#include "client/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainyard::output {

std::string Terminal::Style(absl::string_view code, absl::string_view text) const {
  return color ? absl::StrCat("\xff[", code, "m", text, "\xff[0m") : std::string(text);
}

Terminal DetectTerminal(const TerminalSettings& settings) {
  Terminal terminal;
  terminal.out_is_terminal = isatty(STDOUT_FILENO) != 0;
  terminal.err_is_terminal = isatty(STDERR_FILENO) != 0 && settings.term != "dumb";
  terminal.color = terminal.out_is_terminal && terminal.err_is_terminal && !settings.no_color &&
                   !settings.has_no_color;
  const std::string locale = absl::AsciiStrToLower(settings.locale);
  terminal.unicode = absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8");
  return Resized(terminal);
}

Terminal Resized(Terminal terminal) {
  constexpr int kNarrowest = 40;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = std::max<int>(size.ws_col, kNarrowest);
    if (size.ws_row > 0) terminal.height = size.ws_row;
  }
  return terminal;
}

}  // namespace trainyard::output
