// exec runs a command beside the program of a running rank.
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/link/tunnel.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/tunnel_errors.h"

namespace trainyard::commands {
namespace {

struct ExecOptions {
  std::string job;
  int rank = 0;
  bool terminal = false;
  bool no_terminal = false;
  std::vector<std::string> words;
};

// The code of shells for a command that cannot be executed.
constexpr int kExitCannotExecute = 127;

std::optional<v1::TerminalSize> SizeOfTerminal() {
  winsize window{};
  if (ioctl(STDIN_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) {
    return std::nullopt;
  }
  v1::TerminalSize size;
  size.set_columns(window.ws_col);
  size.set_rows(window.ws_row);
  return size;
}

// While it lives, all keys go to the other side as they are, Ctrl-C too.
class RawTerminal {
 public:
  RawTerminal() {
    has_settings_ = tcgetattr(STDIN_FILENO, &settings_) == 0;
    if (!has_settings_) return;
    termios raw = settings_;
    cfmakeraw(&raw);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  ~RawTerminal() {
    if (has_settings_) (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &settings_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  bool has_settings_ = false;
  termios settings_{};
};

// Follows the size of the window, and passes Ctrl-C on. It runs on the thread of the input.
class Watcher {
 public:
  Watcher(const Context& context, link::Tunnel& tunnel, std::optional<v1::TerminalSize> size)
      : context_(context), tunnel_(tunnel), size_(std::move(size)) {}

  void Interrupt() {
    is_interrupted_ = true;
    tunnel_.Wake();
  }

  void Look() {
    if (is_interrupted_.exchange(false)) {
      v1::TunnelFrame frame;
      frame.set_signal(SIGINT);
      (void)tunnel_.Write(frame);
      context_.interrupt.Rearm();
    }
    if (!size_.has_value()) return;
    const auto size = SizeOfTerminal();
    if (!size.has_value() ||
        (size->columns() == size_->columns() && size->rows() == size_->rows())) {
      return;
    }
    size_ = size;
    v1::TunnelFrame frame;
    *frame.mutable_size() = *size;
    (void)tunnel_.Write(frame);
  }

 private:
  const Context& context_;
  link::Tunnel& tunnel_;
  std::optional<v1::TerminalSize> size_;
  std::atomic<bool> is_interrupted_{false};
};

// Writes what comes until the end. Returns the exit code of the command, or nothing if there is
// none.
std::optional<int> Receive(link::Tunnel& tunnel) {
  std::optional<int> code;
  v1::TunnelFrame frame;
  while (tunnel.Read(frame)) {
    bool is_read = true;
    if (frame.has_output()) is_read = link::WriteAll(STDOUT_FILENO, frame.output());
    if (frame.has_error_output()) is_read = link::WriteAll(STDERR_FILENO, frame.error_output());
    if (!is_read) {
      tunnel.Cancel();
      code = 128 + SIGPIPE;
    }
    if (!frame.has_exit()) continue;
    code = frame.exit().signal() != 0 ? 128 + frame.exit().signal() : frame.exit().code();
  }
  return code;
}

Result Exec(const Context& context, const ExecOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::TunnelOpen open;
  TY_ASSIGN_OR_RETURN(*open.mutable_job(), ResolveOne(*link, options.job));
  open.set_rank(options.rank);
  v1::ExecCommand& command = *open.mutable_command();
  for (const std::string& word : options.words) *command.add_words() = word;
  const bool is_terminal = isatty(STDIN_FILENO) != 0;
  const bool wants_terminal = options.terminal || (is_terminal && !options.no_terminal);
  std::optional<v1::TerminalSize> size;
  if (wants_terminal) {
    size = SizeOfTerminal();
    command.mutable_terminal()->set_columns(context.terminal.width);
    command.mutable_terminal()->set_rows(context.terminal.height);
    if (size.has_value()) *command.mutable_terminal() = *size;
    command.set_term(VariableOf(context.surroundings, "TERM").value_or(""));
  }
  std::optional<RawTerminal> raw;
  if (wants_terminal && is_terminal) raw.emplace();
  link::Tunnel tunnel(*link, open);
  std::optional<int> code;
  {
    Watcher watcher(context, tunnel, std::move(size));
    // With a terminal, Ctrl-C is a key like others, and a signal is meant for this process.
    const link::Interrupt::Scope scope(context.interrupt, [&] {
      if (raw.has_value()) {
        tunnel.Cancel();
      } else {
        watcher.Interrupt();
      }
    });
    const link::InputPump pump(tunnel, STDIN_FILENO, [&watcher] { watcher.Look(); });
    code = Receive(tunnel);
  }
  const absl::Status status = tunnel.Finish();
  raw.reset();
  if (code.has_value()) return static_cast<link::ExitCode>(*code);
  if (ErrorReason(status) == error::kCannotExecute) {
    context.Say(absl::StrCat("error: ", status.message()));
    return static_cast<link::ExitCode>(kExitCannotExecute);
  }
  if (!status.ok()) return status;
  return absl::UnavailableError("the connection has ended before the command has");
}

}  // namespace

void AddExec(VerbTable& verbs) {
  verbs.Add<ExecOptions>(
      "exec", "Run a command beside the program of a running job", "12 --rank 0 -- bash",
      [](client::Flags& flags, ExecOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Value("--rank", options.rank, "The rank beside which it runs; 0 by default")
            .Range(0, 4095);
        flags.Switch("-t,--terminal", options.terminal,
                     "Give the command a terminal, even if stdin is none");
        flags.Switch("-T,--no-terminal", options.no_terminal,
                     "Give it pipes, even if stdin is a terminal");
        flags.Rest("COMMAND", options.words, "The command; a shell if there is none");
      },
      Exec);
}

}  // namespace trainyard::commands
