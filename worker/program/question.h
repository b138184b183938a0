// Asks another program something while the user's program runs, such as Python for its packages.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/files.h"

namespace trainyard::program {

// A process of its own with low priority, for which nobody waits. It is not thread-safe.
class Question {
 public:
  Question() = default;
  // Ends the process if it still runs.
  ~Question();
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  // Starts `words` with these variables, each "NAME=VALUE", and with the file `input` as stdin.
  // Names without a slash are looked for in the $PATH of this process. Returns false if it cannot
  // be started.
  bool Start(std::vector<std::string> words, std::vector<std::string> variables,
             const std::string& input);
  bool is_running() const { return pid_ != 0; }
  // Takes what has come of the answer. Returns true if it is complete, or longer than any answer.
  bool Take();
  // Ends the process if it still runs. The answer stays.
  void End();

  // Can be read once there is something to take, or is -1.
  int fd() const { return output_.get(); }
  const std::string& answer() const { return answer_; }

 private:
  pid_t pid_ = 0;
  UniqueFd output_;
  std::string answer_;
};

}  // namespace trainyard::program
