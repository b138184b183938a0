// Implements Gloo's rendezvous store over the rendezvous/ folder of a run directory. Only this
// folder uses it, since it includes Gloo.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gloo/rendezvous/store.h"
#include "worker/run_dir/paths.h"

namespace trainyard::parallel {

// Polls the folder, since workers on several hosts mirror keys into it. Throws Gloo's exceptions,
// as Gloo's interface demands: IoException on failures of the file system, when the deadline
// passes, and when `cancelled` is set.
class RunDirStore : public gloo::rendezvous::Store {
 public:
  // `members` are the global ranks by rank in the group. Gloo's keys are ranks in the group, and
  // those in the folder are global ones. `cancelled` may be null; it is borrowed.
  RunDirStore(run_dir::RunDir dir, std::string prefix, std::vector<int> members,
              absl::Duration timeout, const std::atomic<bool>* cancelled);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Returns the global ranks that the last wait did not see.
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  std::string Global(const std::string& key) const;
  std::string Path(const std::string& key) const { return prefix_ + Global(key); }

  const run_dir::RunDir dir_;
  const std::string prefix_;
  const std::vector<int> members_;
  const absl::Duration timeout_;
  const std::atomic<bool>* const cancelled_;
  std::vector<std::string> missing_;
};

}  // namespace trainyard::parallel
