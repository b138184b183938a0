// Runs child processes that answer and end, and starts daemons that stay.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

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

// Returns true if the child has ended, and then reaps it. `exit_code` receives its exit code, or
// 128 + the signal that ended it.
bool HasEnded(pid_t pid, int& exit_code);

}  // namespace trainyard::daemons
