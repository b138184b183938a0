// Finds out which data sets lie in the worker's folder, and notices when that changes. The trainer
// looks, because only it knows the formats. It looks in the background and with the lowest
// priority, since it reads whole files to hash them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/agent/accounts.h"
#include "worker/agent/report.h"

namespace trainyard::agent {

// Reads what `trainyard-trainer --data ls` prints. Returns INTERNAL if it is no such list.
absl::StatusOr<Datasets> ParseDatasets(absl::string_view json);

// Returns a text that changes when files come, go or change in the folder, or in a folder directly
// below it. It is empty if there is no such folder.
std::string FolderSignature(const std::string& folder);

// Looks when it is started, and again when the signature of the folder has changed. It is
// thread-safe.
class DatasetWatch {
 public:
  struct Options {
    std::string state_dir;  // where the trainer's answer is kept
    std::string trainer;
    std::string dataset_dir;  // empty if the host has none
    absl::Duration interval;  // between two looks at the signature
    // The trainer looks as this account. It reads files that users may have put there.
    Account reader = {};
  };
  // `on_change` is called on the thread of the watch.
  DatasetWatch(Options options, std::function<void()> on_change);
  ~DatasetWatch();

  void Start();
  void Stop();  // kills a trainer that looks
  // Returns what was found last, or null before that.
  std::shared_ptr<const Datasets> Latest() const;

 private:
  void Run();
  absl::StatusOr<Datasets> Look();
  absl::StatusOr<pid_t> StartTrainer(const std::string& out, const std::string& err) const;
  // Returns the error of a trainer that has printed `log`.
  absl::Status Failure(const std::string& log) const;

  const Options options_;
  const std::function<void()> on_change_;
  mutable absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const Datasets> latest_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace trainyard::agent
