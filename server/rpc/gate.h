// Admits calls. Each handler of a service is declared with one of the macros below, which look the
// call up in the table of rules (server/access/rules.h), find out who calls, and only then call the
// handler, with the caller. A call that is refused is answered here.
//
//   TY_UNARY_RPC(JobService, GetJob, GetJobRequest, Job)
//
// declares the override that gRPC calls, and the handler
//
//   grpc::ServerUnaryReactor* GetJob(const access::Caller& caller,
//                                    grpc::CallbackServerContext* context,
//                                    const v1::GetJobRequest* request, v1::Job* response);
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/rpc/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/rules.h"
#include "server/rpc/services.h"
#include "server/rpc/streams.h"

namespace trainyard::rpc {

// The name of the metadata by which an administrator acts for another user.
inline constexpr char kActAsKey[] = "trainyard-as";

// Returns what a request is about, by its fields: names of jobs and of other resources.
template <typename Request>
std::vector<std::string> ResourcesOf(const Request& request) {
  if constexpr (requires { request.names(); }) {
    return {request.names().begin(), request.names().end()};
  } else if constexpr (requires { request.left(); }) {
    return {request.left(), request.right()};
  } else if constexpr (requires { request.name(); }) {
    return {request.name()};
  } else if constexpr (requires { request.parent(); }) {
    return {request.parent()};
  } else if constexpr (requires { request.worker(); }) {
    return {request.worker()};
  } else if constexpr (requires { request.subject(); }) {
    return {request.subject()};
  } else if constexpr (requires { request.spec().name(); }) {
    return {request.spec().name()};
  } else if constexpr (requires { request.quota(); }) {
    return {request.quota().subject()};
  } else if constexpr (requires { request.reservation(); }) {
    return {request.reservation().name()};
  } else if constexpr (requires { request.project(); }) {
    if constexpr (requires { request.project().name(); }) return {request.project().name()};
  } else if constexpr (requires { request.id(); }) {
    return {request.id()};
  }
  return {};
}

// Returns true if the request only asks what would happen.
template <typename Request>
bool IsTrial(const Request& request) {
  if constexpr (requires { request.validate_only(); }) return request.validate_only();
  return false;
}

// Returns who makes the call: UNAUTHENTICATED if that is not known, and PERMISSION_DENIED if the
// caller may not be the one that it says.
absl::StatusOr<access::Caller> Identify(const grpc::ServerContextBase& context, Services& services,
                                        access::Party party);

// Decides whether the call is admitted, and writes what the audit log needs. `resources` are those
// of the request. A job that the caller may not see does not exist for it (NOT_FOUND).
absl::StatusOr<access::Caller> Admit(const access::Rule& rule,
                                     const grpc::ServerContextBase& context, Services& services,
                                     const std::vector<std::string>& resources, bool is_trial);

// Returns a user as a caller, with the role that the user has now, for what the server does later
// in the name of that user. The system is asked, which may take its time.
access::Caller CallerFor(const std::string& user, const Services& services);

// Returns PERMISSION_DENIED or NOT_FOUND if the caller may not change the job. A job that does not
// exist is left to others.
absl::Status CheckMayChange(const access::Caller& caller, const Services& services, JobId job);
// Returns true if the caller may see the job.
bool MaySee(const access::Caller& caller, const Services& services, const core::JobRecord& job);

namespace internal {

template <typename Handler>
grpc::ServerUnaryReactor* Guard(const access::Rule& rule, grpc::CallbackServerContext* context,
                                Services& services, const std::vector<std::string>& resources,
                                bool is_trial, const Handler& handler) {
  const auto caller = Admit(rule, *context, services, resources, is_trial);
  if (caller.ok()) return handler(*caller);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(caller.status()));
  return reactor;
}

template <typename Request>
absl::Status Read(const grpc::ByteBuffer& bytes, Request& request) {
  grpc::Slice slice;
  if (bytes.DumpToSingleSlice(&slice).ok() &&
      request.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes of the request are no ", Request::descriptor()->name()));
}

}  // namespace internal

#define TY_UNARY_RPC(Service, Rpc, Request, Response)                                             \
  grpc::ServerUnaryReactor* Rpc(grpc::CallbackServerContext* context, const v1::Request* request, \
                                v1::Response* response) final {                                   \
    return internal::Guard(                                                                       \
        access::RuleOf(#Service "/" #Rpc), context, services_, ResourcesOf(*request),             \
        IsTrial(*request),                                                                        \
        [&](const access::Caller& caller) { return Rpc(caller, context, request, response); });   \
  }                                                                                               \
  grpc::ServerUnaryReactor* Rpc(const access::Caller& caller,                                     \
                                grpc::CallbackServerContext* context, const v1::Request* request, \
                                v1::Response* response)

// The handler of a call that answers with a stream has no response.
#define TY_STREAM_RPC(Service, Rpc, Request, Response)                                        \
  grpc::ServerWriteReactor<v1::Response>* Rpc(grpc::CallbackServerContext* context,           \
                                              const v1::Request* request) final {             \
    const auto caller = Admit(access::RuleOf(#Service "/" #Rpc), *context, services_,         \
                              ResourcesOf(*request), IsTrial(*request));                      \
    return caller.ok() ? Rpc(*caller, request) : FailedStream<v1::Response>(caller.status()); \
  }                                                                                           \
  grpc::ServerWriteReactor<v1::Response>* Rpc(const access::Caller& caller,                   \
                                              const v1::Request* request)

// A handler declared with this one writes its messages as bytes, which many streams may share. gRPC
// hands over the bytes of the request too.
#define TY_BYTES_STREAM_RPC(Service, Rpc, Request)                                                 \
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Rpc(grpc::CallbackServerContext* context,            \
                                                  const grpc::ByteBuffer* bytes) final {           \
    v1::Request request;                                                                           \
    const absl::Status read = internal::Read(*bytes, request);                                     \
    if (!read.ok()) return FailedStream<grpc::ByteBuffer>(read);                                   \
    const auto caller = Admit(access::RuleOf(#Service "/" #Rpc), *context, services_,              \
                              ResourcesOf(request), IsTrial(request));                             \
    return caller.ok() ? Rpc(*caller, &request) : FailedStream<grpc::ByteBuffer>(caller.status()); \
  }                                                                                                \
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Rpc(const access::Caller& caller,                    \
                                                  const v1::Request* request)

}  // namespace trainyard::rpc
