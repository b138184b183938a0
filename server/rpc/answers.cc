// Ends unary calls: at once, on the writer, on an executor, or after a commit.
#include "server/rpc/answers.h"

#include <utility>

#include "common/base/errors.h"
#include "common/rpc/status.h"

namespace trainyard::rpc {

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                   const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* Refused(grpc::CallbackServerContext* context, RequestCheck& check) {
  return Finished(context, check.Take());
}

grpc::ServerUnaryReactor* FinishFromYard(grpc::CallbackServerContext* context, Services& services,
                                         FillFromYard fill) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services.runtime.Read([reactor, fill = std::move(fill)](absl::StatusOr<const core::Yard*> yard) {
    reactor->Finish(ToGrpcStatus(yard.ok() ? fill(**yard) : yard.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* FinishAfter(grpc::CallbackServerContext* context,
                                      runtime::Executor& executor,
                                      std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status posted = executor.TryPost(
      [reactor, work = std::move(work)] { reactor->Finish(ToGrpcStatus(work())); });
  if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  return reactor;
}

grpc::ServerUnaryReactor* FinishWhenDone(grpc::CallbackServerContext* context, Services& services,
                                         core::Input input, FillFromReply fill) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services.runtime.Post(std::move(input), [reactor, fill = std::move(fill)](
                                              const absl::StatusOr<core::Reply>& reply) {
    reactor->Finish(ToGrpcStatus(reply.ok() ? fill(*reply) : reply.status()));
  });
  return reactor;
}

absl::StatusOr<std::shared_ptr<const runtime::JobView>> FindJob(const runtime::Board& board,
                                                                JobId job) {
  auto view = board.FindJob(job);
  if (view == nullptr) return error::JobNotFound(JobName(job));
  return view;
}

}  // namespace trainyard::rpc
