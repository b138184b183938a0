// Implements ListUsage. The board has the sums, and the jobs are looked at only if the largest are
// asked for.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/rpc/status.h"
#include "server/codec/time.h"
#include "server/core/scheduling/quota.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/sharing_service.h"

namespace trainyard::rpc {
namespace {

using runtime::Board;
using runtime::JobView;

int64_t BytesOf(const JobView& view) {
  return view.checkpoint_bytes + view.streams.sum();
}

// Sums by project leave out jobs that the caller may not see, since a private project is not known
// to others. Sums by user have them, as the disk has.
void FillUsage(const Services& services, const access::Caller& caller, const core::Yard& yard,
               bool by_project, v1::ListUsageResponse& response) {
  std::map<std::string, Board::Tally> sums;
  for (const auto& [key, tally] : services.board.Tallies()) {
    const auto& [project, user] = key;
    if (by_project && !services.directory.MaySee(caller, user, project)) continue;
    sums[by_project ? project : user].Add(tally);
  }
  const char* kind = by_project ? "project" : "user";
  for (const auto& [name, sum] : sums) {
    v1::Usage& usage = *response.add_usage();
    usage.set_subject(absl::StrCat(kind, ":", name));
    usage.set_jobs(sum.jobs);
    *usage.mutable_device_time() = codec::ToDuration(sum.device_time_us);
    *usage.mutable_stored() = StoredBytesProto(sum.checkpoint_bytes, sum.streams);
    const core::QuotaRecord* quota =
        name.empty() ? nullptr : core::QuotaFor(yard.snapshot().quotas, kind, name);
    if (quota != nullptr) usage.set_stored_bytes_max(quota->stored_bytes);
  }
}

// Keeps the largest jobs at the front of a heap whose first element is the smallest of them.
void AddLargest(const Services& services, const access::Caller& caller, size_t count,
                v1::ListUsageResponse& response) {
  using View = std::shared_ptr<const JobView>;
  std::vector<View> largest;
  const auto is_larger = [](const View& a, const View& b) {
    return std::pair(BytesOf(*a), a->record.id) > std::pair(BytesOf(*b), b->record.id);
  };
  int64_t before = 0;
  while (true) {
    const std::vector<View> page =
        services.board.ListJobs(before, kUsagePageJobs, [&](const JobView& view) {
          return BytesOf(view) > 0 && MaySee(caller, services, view.record);
        });
    for (const View& view : page) {
      largest.push_back(view);
      std::push_heap(largest.begin(), largest.end(), is_larger);
      if (largest.size() <= count) continue;
      std::pop_heap(largest.begin(), largest.end(), is_larger);
      largest.pop_back();
    }
    if (page.size() < kUsagePageJobs) break;
    before = page.back()->record.id.value;
  }
  std::sort(largest.begin(), largest.end(), is_larger);
  for (const View& view : largest) {
    v1::JobUsage* job = response.add_largest_jobs();
    job->set_job(JobName(view->record.id));
    job->set_display_name(view->record.submission->name);
    job->set_user(view->record.submission->user);
    job->set_project(view->record.submission->project);
    job->set_state(ToProto(view->record.state));
    if (view->record.end_us != 0)
      *job->mutable_end_time() = codec::ToTimestamp(view->record.end_us);
    *job->mutable_stored() = StoredBytesProto(view->checkpoint_bytes, view->streams);
  }
}

}  // namespace

grpc::ServerUnaryReactor* SharingServiceImpl::ListUsage(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::ListUsageRequest* request,
                                                        v1::ListUsageResponse* response) {
  RequestCheck check;
  check.NotNegative("largest_jobs", request->largest_jobs());
  check.MaxCount("largest_jobs", request->largest_jobs(), kLargestJobsMax);
  if (!v1::UsageGroup_IsValid(request->group())) {
    check.Add("group", absl::StrCat(static_cast<int>(request->group()), " is no group"));
  }
  if (!check.ok()) return Refused(context, check);
  const bool by_project = request->group() == v1::USAGE_GROUP_PROJECT;
  const auto fill = [this, caller, response, by_project](const core::Yard& yard) {
    FillUsage(services_, caller, yard, by_project, *response);
    return absl::OkStatus();
  };
  if (request->largest_jobs() == 0) return FinishFromYard(context, services_, fill);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto count = static_cast<size_t>(request->largest_jobs());
  const absl::Status posted =
      services_.executor.TryPost([this, reactor, response, caller, count, fill] {
        AddLargest(services_, caller, count, *response);
        services_.runtime.Read([reactor, fill](absl::StatusOr<const core::Yard*> yard) {
          reactor->Finish(ToGrpcStatus(yard.ok() ? fill(**yard) : yard.status()));
        });
      });
  if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  return reactor;
}

}  // namespace trainyard::rpc
