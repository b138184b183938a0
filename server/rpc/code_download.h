// Streams the code of a job, or of a saved spec, from an offset, for users and for attempts that
// run it.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/rpc/services.h"
#include "server/rpc/streams.h"
#include "trainyard/v1/catalogue.pb.h"
#include "trainyard/v1/code.pb.h"

namespace trainyard::rpc {

// Streams to `owner` what the job that the request names has, or what `saved` has if it is not
// null. Returns NOT_FOUND if there is no such job, or it has no such part, and OUT_OF_RANGE for an
// offset past the end.
grpc::ServerWriteReactor<v1::DownloadCodeResponse>* StartCodeDownload(
    Services& services, const StreamOwner& owner, const v1::DownloadCodeRequest& request,
    const v1::SavedSpec* saved = nullptr);

}  // namespace trainyard::rpc
