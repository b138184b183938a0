// Runs child processes that answer and end, and starts daemons that stay, and companions that end
// with this process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/files.h"

namespace trainyard::daemons {

struct ChildResult {
  // The exit code, or 128 + the signal that ended it.
  int exit_code = 0;
  std::string out;
  std::string err;
};

// Runs a program to its end. Kills it and returns DEADLINE_EXCEEDED after `timeout`. Output past 1
// MiB is dropped. If there is an `on_out`, it receives what the child prints, piece by piece as it
// comes, and ChildResult::out stays empty.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& args, absl::string_view input,
                                     absl::Duration timeout,
                                     const std::function<void(absl::string_view)>& on_out = {});

// Starts a program in a session of its own, so that neither Ctrl-C nor the end of the terminal
// reaches it. Its stdout and stderr are appended to the log. The caller reaps the child, or ends
// before it.
absl::StatusOr<pid_t> StartDaemon(const std::vector<std::string>& args,
                                  const std::string& log_path);

// A program that works for this process and talks to it. Its descriptors do not block. It ends with
// the thread that started it, even if that is killed, and Ctrl-C does not reach it. It stays in the
// session of the terminal, so it may ask the user for a password there.
class Companion {
 public:
  // Finds args[0] in $PATH. If there is no such program, the companion ends with
  // kCannotStart.
  static absl::StatusOr<Companion> Start(const std::vector<std::string>& args);
  Companion(Companion&& other) noexcept;
  Companion& operator=(Companion&&) = delete;
  // Ends it.
  ~Companion();

  int in() const { return in_.get(); }
  int out() const { return out_.get(); }
  int err() const { return err_.get(); }
  // Gives it a second to end by itself, ends it otherwise, and returns its exit code, or 128 + the
  // signal that ended it.
  int End();

  static constexpr int kCannotStart = 126;

 private:
  Companion(pid_t pid, UniqueFd in, UniqueFd out, UniqueFd err);
  bool WaitFor(absl::Duration timeout);

  pid_t pid_;  // 0 once it has ended and was reaped
  int exit_code_ = 0;
  UniqueFd in_;
  UniqueFd out_;
  UniqueFd err_;
};

// Returns true if the child has ended, and then reaps it. `exit_code` receives its exit code, or
// 128 + the signal that ended it.
bool HasEnded(pid_t pid, int& exit_code);

}  // namespace trainyard::daemons
