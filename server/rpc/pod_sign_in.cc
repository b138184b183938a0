// Holds calls between their headers and their handlers.
#include "server/rpc/pod_sign_in.h"

#include <string>

#include "absl/strings/string_view.h"
#include "server/rpc/sign_in.h"

namespace trainyard::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

constexpr absl::string_view kJoinMethod = "/trainyard.v1.AgentService/JoinWorker";

class PodWait : public Interceptor {
 public:
  PodWait(Services& services, ServerRpcInfo& info) : services_(services), info_(info) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      HoldIfUnknown(methods);
    } else {
      methods->Proceed();
    }
  }

 private:
  void HoldIfUnknown(InterceptorBatchMethods* methods) {
    const SignIn& sign_in = *services_.sign_in;
    const absl::string_view token = BearerTokenOf(*methods->GetRecvInitialMetadata());
    if (!sign_in.learn_pod || !IsTokenOfPod(sign_in, token)) {
      methods->Proceed();
      return;
    }
    const auto peer = services_.connections.Find(info_.server_context()->peer());
    // A token means nothing where the transport says who calls.
    if (peer == nullptr || !peer->user.empty() || !peer->worker.empty()) {
      methods->Proceed();
      return;
    }
    const bool joins = info_.method() == kJoinMethod;
    sign_in.learn_pod(token, joins ? access::PodUse::kWorker : access::PodUse::kClient,
                      peer->address, [methods] { methods->Proceed(); });
  }

  Services& services_;
  ServerRpcInfo& info_;
};

class PodWaits : public ServerInterceptorFactoryInterface {
 public:
  explicit PodWaits(Services& services) : services_(services) {}
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new PodWait(services_, *info);  // gRPC deletes it
  }

 private:
  Services& services_;
};

}  // namespace

std::unique_ptr<ServerInterceptorFactoryInterface> PodSignIn(Services& services) {
  return std::make_unique<PodWaits>(services);
}

}  // namespace trainyard::rpc
