// Writes all metrics of the server as the text that Prometheus reads (format 0.0.4).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "prometheus/registry.h"
#include "server/access/directory.h"
#include "server/metrics/call_counts.h"
#include "server/metrics/device_usage.h"
#include "server/metrics/measured.h"
#include "server/metrics/process.h"
#include "server/metrics/yard_counts.h"
#include "server/runtime/board.h"
#include "server/runtime/bucket_copier.h"
#include "server/runtime/executor.h"
#include "server/runtime/runtime.h"

namespace trainyard::metrics {

// Everything that counts while the server runs. It is there before the writer starts.
struct Meters {
  explicit Meters(Clock& clock) : measures(registry, clock), calls(registry, clock) {}

  prometheus::Registry registry;
  YardCounts yard;
  Measures measures;
  CallCounts calls;
};

// The writer of the text. It is thread-safe, has a thread of its own, and borrows everything that
// it is given.
class Exposition {
 public:
  Exposition(const Meters& meters, runtime::Runtime& runtime, const runtime::Board& board,
             const access::Directory& directory, const runtime::BucketCopier* copier,
             std::string state_dir, Clock& clock);

  using Done = std::function<void(absl::StatusOr<std::string>)>;
  // Calls `done` once, on another thread. The server's loop only copies what workers have reported.
  void Write(Done done);

 private:
  // So many requests wait for the thread. Further ones are told to try again.
  static constexpr size_t kWaitingMax = 16;

  std::string Text(const PoolUsage& usage) const;

  const Meters& meters_;
  runtime::Runtime& runtime_;
  const runtime::Board& board_;
  const access::Directory& directory_;
  const runtime::BucketCopier* const copier_;  // null without a bucket
  const std::string state_dir_;
  Clock& clock_;
  const std::optional<double> process_start_ = StartOfProcess();
  // One thread is enough, and no flood of requests takes more.
  runtime::Executor executor_{1, kWaitingMax};
};

}  // namespace trainyard::metrics
