// Makes pages of jobs from the board: the newest first, or in an order that was asked for.
#include "server/rpc/list_jobs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/labels.h"
#include "common/base/pattern.h"
#include "common/base/status_macros.h"
#include "server/filter/expression.h"
#include "server/rpc/convert.h"
#include "server/rpc/gate.h"
#include "server/rpc/job_fields.h"
#include "server/rpc/limits.h"
#include "server/rpc/remarks.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

// The part of a request that is a language of its own.
struct Query {
  JobFields fields;
  std::optional<filter::Expression> where;
  std::optional<filter::Order> order;
};

void ReadQuery(const v1::ListJobsRequest& request, Query& query, RequestCheck& check) {
  const filter::TypeOf type_of = [&query](const std::string& field) {
    return query.fields.TypeOf(field);
  };
  if (!request.where().empty()) {
    auto where = filter::Expression::Parse(request.where(), type_of);
    if (!where.ok()) check.Add("where", where.status().message());
    if (where.ok()) query.where = *std::move(where);
  }
  if (!request.order_by().empty()) {
    auto order = filter::ParseOrder(request.order_by(), type_of);
    if (!order.ok()) check.Add("order_by", order.status().message());
    if (order.ok()) query.order = *std::move(order);
  }
}

// Decides which jobs a request lets through.
class Filter {
 public:
  Filter(const v1::ListJobsRequest& request, JobId array, const Query& query,
         const Services& services)
      : query_(query),
        services_(services),
        now_(absl::FromUnixMicros(services.runtime.Now().wall_us)),
        states_(request.states().begin(), request.states().end()),
        user_(request.user()),
        project_(request.project()),
        tags_(request.tags().begin(), request.tags().end()),
        name_(request.job_name()),
        array_(array) {}

  bool Accepts(const runtime::JobView& view) const {
    const core::JobRecord& job = view.record;
    return (states_.empty() || states_.contains(ToProto(job.state))) &&
           (user_.empty() || user_ == job.submission->user) &&
           (project_.empty() || project_ == job.submission->project) &&
           (array_ == JobId{} || array_ == job.array) && HasTags(job) &&
           (name_.empty() || MatchesPattern(job.submission->name, name_)) && Holds(view);
  }

  // Returns what the job is ordered by.
  filter::Value KeyOf(const runtime::JobView& view) const {
    const auto remarks = RemarksOn(services_.remarks, view.record);
    return query_.fields.ValueOf(query_.order->field, FieldsOfJob(view, remarks.get(), now_));
  }

 private:
  bool HasTags(const core::JobRecord& job) const {
    if (tags_.empty()) return true;
    const auto& written = job.submission->tags;
    const auto remarks = RemarksOn(services_.remarks, job);
    return std::all_of(tags_.begin(), tags_.end(), [&](const std::string& tag) {
      return std::find(written.begin(), written.end(), tag) != written.end() ||
             (remarks != nullptr && remarks->tags.contains(tag));
    });
  }
  bool Holds(const runtime::JobView& view) const {
    if (!query_.where.has_value()) return true;
    const auto remarks = RemarksOn(services_.remarks, view.record);
    const FieldsOfJob fields(view, remarks.get(), now_);
    return query_.where->Holds(
        [&](const std::string& field) { return query_.fields.ValueOf(field, fields); });
  }

  const Query& query_;
  const Services& services_;
  const absl::Time now_;

  const std::set<int> states_;
  const std::string user_;
  const std::string project_;
  const std::vector<std::string> tags_;
  const std::string name_;
  const JobId array_;
};

constexpr size_t kNamePatternBytesMax = 63;

using StateCounts = std::map<v1::JobState, int32_t>;
using Views = std::vector<std::shared_ptr<const runtime::JobView>>;

// Sorts jobs. Of equal ones, the newest stays first.
void Sort(const Filter& filter, bool is_descending, Views& views) {
  std::vector<std::pair<filter::Value, size_t>> keys;
  keys.reserve(views.size());
  for (size_t i = 0; i < views.size(); ++i) keys.emplace_back(filter.KeyOf(*views[i]), i);
  std::stable_sort(keys.begin(), keys.end(), [is_descending](const auto& a, const auto& b) {
    return filter::ComesBefore(a.first, b.first, is_descending);
  });
  Views sorted;
  sorted.reserve(views.size());
  for (const auto& [key, place] : keys) sorted.push_back(std::move(views[place]));
  views = std::move(sorted);
}

}  // namespace

absl::Status ListPage(const v1::ListJobsRequest& request, const access::Caller& caller,
                      const Services& services, v1::ListJobsResponse& response) {
  const runtime::Board& board = services.board;
  RequestCheck check;
  const int page_size =
      check.PageSize("page_size", request.page_size(), kJobsPageDefault, kJobsPageMax);
  const int64_t token = check.PageToken("page_token", request.page_token());
  Query query;
  ReadQuery(request, query, check);
  const bool is_sorted = query.order.has_value();
  // A token is the last job of the page before, or how many jobs of an order came already.
  int64_t before = is_sorted ? 0 : token;
  int64_t after = 0;
  check.MaxBytes("user", request.user(), kUserBytesMax);
  check.Name("project", request.project(), /*may_be_empty=*/true);
  check.MaxBytes("job_name", request.job_name(), kNamePatternBytesMax);
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
  const Filter filter(request, array, query, services);
  std::map<JobId, StateCounts> counts;  // by array
  const auto accept = [&](const runtime::JobView& view) {
    const core::JobRecord& job = view.record;
    const bool is_match = filter.Accepts(view) && MaySee(caller, services, job);
    if (!request.group_arrays() || job.array == JobId{}) return is_match;
    if (is_match) ++counts[job.array][ToProto(job.state)];
    // The first job of an array comes last here, and stands for all that were counted.
    return job.id == job.array && counts.contains(job.array);
  };
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  // One job more than asked for shows whether there is another page.
  Views views =
      board.ListJobs(before, is_sorted ? kAll : static_cast<size_t>(page_size) + 1, accept, after);
  if (is_sorted) {
    Sort(filter, query.order->is_descending, views);
    views.erase(views.begin(), views.begin() + std::min(token, static_cast<int64_t>(views.size())));
  }
  const auto count_more = [&] {
    if (!request.count_more()) return;
    if (is_sorted) {
      response.set_more_jobs(static_cast<int64_t>(views.size()) - response.jobs_size());
      return;
    }
    const int64_t last = ParseJobName(response.jobs().rbegin()->name())->value;
    const auto rest = board.ListJobs(last, kAll, accept, after);
    response.set_more_jobs(static_cast<int64_t>(rest.size()));
  };
  size_t bytes = 0;
  for (const auto& view : views) {
    v1::Job shown = ShownJob(services, *view);
    bytes += shown.ByteSizeLong();
    if (response.jobs_size() == page_size || (bytes > kPageBytesMax && response.jobs_size() > 0)) {
      response.set_next_page_token(
          absl::StrCat(is_sorted ? token + response.jobs_size()
                                 : ParseJobName(response.jobs().rbegin()->name())->value));
      count_more();
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
