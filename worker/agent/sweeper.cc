// Removes folders. A rename frees the path at once, and a thread does the slow part.
#include "worker/agent/sweeper.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {

Sweeper::Sweeper(std::string bin, absl::Duration delay, Clock& clock)
    : bin_(std::move(bin)), delay_(delay), clock_(clock) {
  if (const auto left = ListDirectory(bin_); left.ok()) {
    for (const std::string& name : *left) items_.push_back({JoinPath(bin_, name), clock.Uptime()});
  }
  thread_ = std::thread([this] { Run(); });
}

Sweeper::~Sweeper() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

absl::Status Sweeper::Remove(const std::string& path, const std::string& name) {
  // If it cannot be moved, for whatever reason, it can perhaps be removed.
  return Move(path, name, delay_).ok() ? absl::OkStatus() : RemoveTree(path);
}

absl::Status Sweeper::Move(const std::string& path, const std::string& name, absl::Duration delay) {
  const std::string target = JoinPath(bin_, name);
  if (rename(path.c_str(), target.c_str()) != 0) {
    if (errno == ENOENT) {
      if (!FileExists(path)) return absl::OkStatus();
      TY_RETURN_IF_ERROR(MakeDirectories(bin_, 0700));
    }
    if (rename(path.c_str(), target.c_str()) != 0) {
      return ErrnoStatus(errno, "cannot move away", path);
    }
  }
  absl::MutexLock lock(&mutex_);
  const absl::Duration due = clock_.Uptime() + delay;
  const auto later = std::find_if(items_.begin(), items_.end(),
                                  [due](const Item& item) { return item.due > due; });
  items_.insert(later, {target, due});
  return absl::OkStatus();
}

void Sweeper::Run() {
  while (true) {
    std::string path;
    {
      absl::MutexLock lock(&mutex_);
      const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || (!items_.empty() && items_.front().due <= clock_.Uptime());
      };
      const absl::Duration wait = items_.empty() ? delay_ : items_.front().due - clock_.Uptime();
      mutex_.AwaitWithTimeout(absl::Condition(&woken), std::max(wait, absl::ZeroDuration()));
      if (stop_) return;
      if (!woken()) continue;
      path = std::move(items_.front().path);
      items_.pop_front();
    }
    if (const absl::Status removed = RemoveTree(path); !removed.ok()) {
      LogWarning("a folder cannot be removed; the next start tries again",
                 {{"error", std::string(removed.message())}});
    }
  }
}

}  // namespace trainyard::agent
