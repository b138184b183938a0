// Child processes of a test: started, waited for with a bound, and ended whatever happens.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainyard::testing {

// The exit and the output of a finished child.
struct ProcessResult {
  int exit_code = -1;  // -1 where a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
};

// A running child. The destructor kills it with SIGKILL and waits for it.
class Process {
 public:
  struct Options {
    std::vector<std::string> args;  // args[0] is the program's path
    // Variables that are added to the test's own environment.
    std::map<std::string, std::string> environment;
    // Files that take the output; removed by their owner, usually a TempDir.
    std::string stdout_path;
    std::string stderr_path;
    // The file that the child reads as stdin. If it is empty, the child reads nothing.
    std::string stdin_path;
    // A terminal in place of stdin and stderr. What the child writes there is not in its result.
    std::string terminal_path = {};
    // Runs as this user where not negative; the test must be root then.
    int uid = -1;
    // Runs in this network namespace where not negative; borrowed until Start returns. Such a child
    // ends with the thread that started it, so that a test that is killed leaves
    // no worker; ranks in the namespace end with their job or their lease.
    int network_namespace = -1;
  };

  static absl::StatusOr<std::unique_ptr<Process>> Start(Options options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void Signal(int signal);
  // Waits for the end. If the child does not end in time, returns DEADLINE_EXCEEDED and leaves it
  // running.
  absl::StatusOr<ProcessResult> Wait(absl::Duration timeout);
  // Returns what it has written so far.
  std::string Err() const;

 private:
  Process(pid_t pid, int pidfd, Options options)
      : pid_(pid), pidfd_(pidfd), options_(std::move(options)) {}

  const pid_t pid_;
  const int pidfd_;
  const Options options_;
  bool reaped_ = false;
  int wait_status_ = 0;
};

// Starts a child, waits for its end, and returns its exit and output. The output goes through files
// in `scratch_dir`.
absl::StatusOr<ProcessResult> RunProcess(Process::Options options, const std::string& scratch_dir,
                                         absl::Duration timeout);

// Returns true while the process with that pid and start runs, whoever started it. A process that
// has ended and was not reaped does not run.
bool IsProcessAlive(int64_t pid, int64_t start_ticks);

}  // namespace trainyard::testing
