// An interceptor of gRPC sees each call of the server with its status.
#include "server/metrics/call_counts.h"

#include "absl/strings/str_cat.h"
#include "server/access/rules.h"

namespace trainyard::metrics {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

// The bounds are a factor of about four apart. Most calls are answered from memory, and the slow
// ones wait for a disk. SyncWorker waits for orders.
const prometheus::Histogram::BucketBoundaries kCallBounds = {0.0005, 0.002, 0.01, 0.05,
                                                             0.2,    1,     5,    30};

class CallWatch : public Interceptor {
 public:
  CallWatch(CallCounts& counts, const ServerRpcInfo& info)
      : counts_(counts),
        path_(info.method()),
        is_stream_(info.type() != ServerRpcInfo::Type::UNARY),
        began_(counts.clock().Uptime()) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      counts_.Count(path_, static_cast<absl::StatusCode>(methods->GetSendStatus().error_code()),
                    counts_.clock().Uptime() - began_, is_stream_);
    }
    methods->Proceed();
  }

 private:
  CallCounts& counts_;
  const absl::string_view path_;  // of the service, which outlives the call
  const bool is_stream_;
  const absl::Duration began_;
};

class CallWatches : public ServerInterceptorFactoryInterface {
 public:
  explicit CallWatches(CallCounts& counts) : counts_(counts) {}
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new CallWatch(counts_, *info);  // gRPC deletes it
  }

 private:
  CallCounts& counts_;
};

}  // namespace

CallCounts::CallCounts(prometheus::Registry& registry, Clock& clock)
    : clock_(clock),
      calls_(prometheus::BuildCounter()
                 .Name("trainyard_rpcs_total")
                 .Help("The number of calls that were answered, by method and code.")
                 .Register(registry)),
      durations_(prometheus::BuildHistogram()
                     .Name("trainyard_rpc_duration_seconds")
                     .Help("The time from a call with one answer until that answer, by method. "
                           "SyncWorker waits until there are orders.")
                     .Register(registry)) {
  for (const access::Rule& rule : access::kRules) {
    methods_[absl::StrCat("/trainyard.v1.", rule.rpc)].label = std::string(rule.rpc);
  }
  other_.label = kOtherCalls;
}

CallCounts::Method& CallCounts::Find(absl::string_view path) {
  const auto known = methods_.find(std::string(path));
  return known == methods_.end() ? other_ : known->second;
}

void CallCounts::Count(absl::string_view path, absl::StatusCode code, absl::Duration duration,
                       bool is_stream) {
  Method& method = Find(path);
  auto index = static_cast<size_t>(code);
  if (index >= kCodes) index = static_cast<size_t>(absl::StatusCode::kUnknown);
  prometheus::Counter* calls = method.calls[index];
  if (calls == nullptr) {
    // The family returns the same counter to all who ask at a time.
    calls = &calls_.Add({{"method", method.label},
                         {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(index))}});
    method.calls[index] = calls;
  }
  calls->Increment();
  if (is_stream) return;
  prometheus::Histogram* durations = method.durations;
  if (durations == nullptr) {
    durations = &durations_.Add({{"method", method.label}}, kCallBounds);
    method.durations = durations;
  }
  durations->Observe(absl::ToDoubleSeconds(duration));
}

std::unique_ptr<ServerInterceptorFactoryInterface> CallCounts::Interceptors() {
  return std::make_unique<CallWatches>(*this);
}

}  // namespace trainyard::metrics
