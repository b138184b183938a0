// Stores what ranks write as streams of bytes, appended by offset: <dir>/<job>/<attempt>/<rank>.log
// and <rank>.trace.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"

namespace trainyard::runtime {

enum class RankStream { kLog, kTrace, kEnvironment };

struct LogId {
  AttemptId attempt;
  int32_t rank = 0;
  RankStream stream = RankStream::kLog;
};

// The store. It is thread-safe and blocks on the disk.
class LogStore {
 public:
  // These bound a stream: a day of ten lines a second, and four times what a trainer writes.
  static constexpr int64_t kLogBytesMax = int64_t{256} << 20;
  static constexpr int64_t kTraceBytesMax = int64_t{16} << 20;
  static constexpr int64_t kEnvironmentBytesMax = int64_t{128} << 10;

  explicit LogStore(std::string dir) : dir_(std::move(dir)) {}

  // Appends `data`, which starts at `offset`, and returns the end of the log; everything before it
  // is durable. Bytes that are there already are skipped. Returns OUT_OF_RANGE (OFFSET_MISMATCH) if
  // `offset` lies past the end, which would leave a gap, RESOURCE_EXHAUSTED (DISK_FULL), and
  // FAILED_PRECONDITION (STREAM_FULL) once the stream has reached its limit. What fits is stored,
  // and a log ends with a line that says so.
  absl::StatusOr<int64_t> Append(const LogId& log, int64_t offset, absl::string_view data);

  // Returns at most `max_bytes` from `offset`. The result is empty at the end.
  absl::StatusOr<std::string> Read(const LogId& log, int64_t offset, int64_t max_bytes) const;
  // Returns 0 if nothing has come yet.
  absl::StatusOr<int64_t> Size(const LogId& log) const;

  // Returns the number of bytes of all streams of a job.
  absl::StatusOr<int64_t> SizeOf(JobId job) const;
  // Removes all streams of a job, if there are any.
  absl::Status Remove(JobId job);
  // Moves all streams of an attempt to <folder>/<job>/<attempt>.
  absl::Status SetAside(AttemptId attempt, const std::string& folder);
  // Returns the jobs that have streams, in no particular order.
  absl::StatusOr<std::vector<JobId>> ListJobs() const;
  // Returns the attempts of a job that have streams, in no particular order.
  absl::StatusOr<std::vector<AttemptId>> ListAttempts(JobId job) const;

 private:
  std::string Path(const LogId& log) const;
  std::string FolderOf(JobId job) const;
  Mutex& MutexOf(const LogId& log);
  // Makes the name of a new file durable.
  absl::Status SyncFolders(const LogId& log) const;

  const std::string dir_;
  // There is one writer for each log. Several logs may share a mutex.
  std::array<Mutex, 64> mutexes_;
};

}  // namespace trainyard::runtime
