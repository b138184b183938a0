// Stands between a worker and its server, and is a bad network: it sends calls twice, and sends
// calls again that were sent long before, so that they arrive after later ones. It knows no message
// but carries the bytes.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace trainyard::testing {

// The class is thread-safe. Calls must be unary.
class ReplayingProxy final : public grpc::CallbackGenericService {
 public:
  struct Counts {
    int64_t calls = 0;     // of the worker
    int64_t doubled = 0;   // sent twice at the same time
    int64_t replayed = 0;  // sent again later
    // The copies that the server refused, by the reason of the error.
    std::map<std::string, int64_t> refused;
  };

  ReplayingProxy(const std::string& listen, const std::string& server, uint64_t seed);
  ~ReplayingProxy() override;

  // Until then, every call is sent once.
  void BeginNoise();
  Counts counts() const;

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  struct Message {
    std::string method;
    grpc::ByteBuffer bytes;
  };
  class Forwarded;

  // Notes a call of the worker, and sends the copies that chance wants.
  void MakeNoise(const Message& message);
  void SendCopy(Message message);

  grpc::GenericStub stub_;
  mutable absl::Mutex mutex_;
  std::mt19937_64 draws_ ABSL_GUARDED_BY(mutex_);
  bool is_noisy_ ABSL_GUARDED_BY(mutex_) = false;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  int64_t copies_under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Message> kept_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainyard::testing
