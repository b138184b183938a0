// Starts the program of a rank, and notices its end.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "worker/program/environment.h"

namespace trainyard::program {

// A process. It is not thread-safe, and does not end the process.
class Child {
 public:
  struct End {
    int exit_code = 0;
    int signal = 0;  // 0 if it exited by itself
  };

  // Starts `words` in `directory` with this process's environment, in its process group, and with
  // `output` for what it prints. Names without a slash are looked for in $PATH. Returns NOT_FOUND
  // or PERMISSION_DENIED with what cannot be executed, and why.
  static absl::StatusOr<Child> Start(const std::vector<std::string>& words,
                                     const std::string& directory, int output);

  pid_t pid() const { return pid_; }
  // Can be read once the process has ended.
  int fd() const { return pidfd_.get(); }
  // Returns how the process has ended, if it has.
  std::optional<End> Poll();
  // Asks the process to end, and all that it has started.
  void Stop() const;

 private:
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_;
  UniqueFd pidfd_;
};

// Sets and removes variables of this process. It has one thread.
void SetVariables(const Variables& variables);

}  // namespace trainyard::program
