// Counts the calls of gRPC by method and code, and how long they took.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace trainyard::metrics {

// The label of calls that are not in the table of rules: those of health checks and reflection.
inline constexpr char kOtherCalls[] = "other";

// The counts. The class is thread-safe. It borrows the registry and the clock.
class CallCounts {
 public:
  CallCounts(prometheus::Registry& registry, Clock& clock);

  // Counts a call to "/trainyard.v1.JobService/GetJob". The duration of a stream says how long
  // somebody watched, so it is left out.
  void Count(absl::string_view path, absl::StatusCode code, absl::Duration duration,
             bool is_stream);

  // Returns what counts all calls of a server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Interceptors();

  Clock& clock() const { return clock_; }

 private:
  static constexpr size_t kCodes = 17;

  // The series are made with the first call that they count, so that a scrape does not list a
  // thousand zeros.
  struct Method {
    std::string label;
    std::array<std::atomic<prometheus::Counter*>, kCodes> calls = {};
    std::atomic<prometheus::Histogram*> durations = nullptr;
  };

  Method& Find(absl::string_view path);

  Clock& clock_;
  prometheus::Family<prometheus::Counter>& calls_;
  prometheus::Family<prometheus::Histogram>& durations_;
  std::unordered_map<std::string, Method> methods_;  // by path; nothing is added later
  Method other_;
};

}  // namespace trainyard::metrics
