// Makes pages of jobs, newest first, from the board.
#include "server/rpc/list_jobs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/labels.h"
#include "common/base/status_macros.h"
#include "server/rpc/convert.h"
#include "server/rpc/gate.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

// Decides which jobs a request lets through.
class Filter {
 public:
  Filter(const v1::ListJobsRequest& request, JobId array)
      : states_(request.states().begin(), request.states().end()),
        user_(request.user()),
        project_(request.project()),
        tags_(request.tags().begin(), request.tags().end()),
        array_(array) {}

  bool Accepts(const core::JobRecord& job) const {
    return (states_.empty() || states_.contains(ToProto(job.state))) &&
           (user_.empty() || user_ == job.submission->user) &&
           (project_.empty() || project_ == job.submission->project) &&
           (array_ == JobId{} || array_ == job.array) && HasTags(*job.submission);
  }

 private:
  bool HasTags(const core::Submission& submission) const {
    return std::all_of(tags_.begin(), tags_.end(), [&](const std::string& tag) {
      return std::find(submission.tags.begin(), submission.tags.end(), tag) !=
             submission.tags.end();
    });
  }

  const std::set<int> states_;
  const std::string user_;
  const std::string project_;
  const std::vector<std::string> tags_;
  const JobId array_;
};

using StateCounts = std::map<v1::JobState, int32_t>;

}  // namespace

absl::Status ListPage(const v1::ListJobsRequest& request, const access::Caller& caller,
                      const Services& services, v1::ListJobsResponse& response) {
  const runtime::Board& board = services.board;
  RequestCheck check;
  const int page_size =
      check.PageSize("page_size", request.page_size(), kJobsPageDefault, kJobsPageMax);
  int64_t before = check.PageToken("page_token", request.page_token());
  int64_t after = 0;
  check.MaxBytes("user", request.user(), kUserBytesMax);
  check.Name("project", request.project(), /*may_be_empty=*/true);
  check.MaxCount("tags", request.tags_size(), static_cast<int>(kLabelsMax));
  JobId array;
  if (!request.array().empty()) array = check.Job("array", request.array());
  TY_RETURN_IF_ERROR(check.Take());
  if (array != JobId{}) {
    const auto view = board.FindJob(array);
    if (view == nullptr || !MaySee(caller, services, view->record)) {
      return error::JobNotFound(request.array());
    }
    array = view->record.array;
    if (array == JobId{}) return absl::OkStatus();  // the job belongs to no array
    // The jobs of an array have consecutive numbers.
    const int64_t end = array.value + view->record.submission->array_size;
    before = before == 0 ? end : std::min(before, end);
    after = array.value - 1;
  }
  const Filter filter(request, array);
  std::map<JobId, StateCounts> counts;  // by array
  const auto accept = [&](const runtime::JobView& view) {
    const core::JobRecord& job = view.record;
    const bool is_match = filter.Accepts(job) && MaySee(caller, services, job);
    if (!request.group_arrays() || job.array == JobId{}) return is_match;
    if (is_match) ++counts[job.array][ToProto(job.state)];
    // The first job of an array comes last here, and stands for all that were counted.
    return job.id == job.array && counts.contains(job.array);
  };
  // One job more than asked for shows whether there is another page.
  const auto views = board.ListJobs(before, static_cast<size_t>(page_size) + 1, accept, after);
  size_t bytes = 0;
  for (const auto& view : views) {
    v1::Job shown = ToProto(*view);
    bytes += shown.ByteSizeLong();
    if (response.jobs_size() == page_size || (bytes > kPageBytesMax && response.jobs_size() > 0)) {
      response.set_next_page_token(
          absl::StrCat(ParseJobName(response.jobs().rbegin()->name())->value));
      break;
    }
    v1::Job* job = response.add_jobs();
    *job = std::move(shown);
    if (const auto grouped = counts.find(view->record.id); grouped != counts.end()) {
      for (const auto& [state, jobs] : grouped->second) {
        v1::StateCount* count = job->add_array_states();
        count->set_state(state);
        count->set_jobs(jobs);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::rpc
