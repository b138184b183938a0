// ls fetches jobs page by page and shows them as a table in which an array is one row.
#include <algorithm>
#include <map>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct ListOptions {
  std::vector<std::string> states;
  int limit = 0;  // 0 means 20, or all jobs with --all
  bool all = false;
  std::string user;
  std::string project;
  std::string array;  // the name of one of its jobs
  std::vector<std::string> tags;
  bool expand = false;
};

constexpr int kLimitDefault = 20;
constexpr int kPageSizeMax = 1000;
// Longer reasons are cut in the table; -o wide shows all of them.
constexpr int kWhyWidth = 44;
constexpr int kDescriptionWidth = 40;

// Reads the name of a state, such as "running" or "RUNNING".
absl::StatusOr<v1::JobState> ParseState(const std::string& text) {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  if (v1::JobState_Parse("JOB_STATE_" + absl::AsciiStrToUpper(text), &state) &&
      state != v1::JOB_STATE_UNSPECIFIED) {
    return state;
  }
  std::vector<std::string> names;
  for (int i = v1::JobState_MIN + 1; i <= v1::JobState_MAX; ++i) {
    names.push_back(absl::AsciiStrToLower(output::StateText(static_cast<v1::JobState>(i))));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a state of a job; expected ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::vector<v1::Job>> FetchJobs(const Context& context, link::ServerLink& link,
                                               const ListOptions& options) {
  v1::ListJobsRequest request;
  for (const std::string& text : options.states) {
    TY_ASSIGN_OR_RETURN(const v1::JobState state, ParseState(text));
    request.add_states(state);
  }
  request.set_user(options.user);
  request.set_project(options.project);
  request.mutable_tags()->Add(options.tags.begin(), options.tags.end());
  if (!options.array.empty()) {
    TY_ASSIGN_OR_RETURN(*request.mutable_array(), ResolveOne(link, options.array));
  }
  // The data formats list the jobs of arrays one by one. Only tables group them.
  request.set_group_arrays(context.options.IsTable() && !options.expand && options.array.empty());
  const int limit = options.limit > 0 ? options.limit : options.all ? INT32_MAX : kLimitDefault;
  std::vector<v1::Job> jobs;
  while (static_cast<int64_t>(jobs.size()) < limit) {
    request.set_page_size(std::min(limit - static_cast<int>(jobs.size()), kPageSizeMax));
    TY_ASSIGN_OR_RETURN(v1::ListJobsResponse page,
                        link.Call(&v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
    if (page.next_page_token().empty()) break;
    request.set_page_token(page.next_page_token());
  }
  return jobs;
}

std::string ProgressText(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.total_steps() <= 0) return "";
  return absl::StrCat(100 * progress.step() / progress.total_steps(), "%");
}

std::string AccuracyText(const v1::Job& job) {
  const auto accuracy = job.final_metrics().find("test.accuracy");
  return accuracy == job.final_metrics().end() ? "" : output::PercentText(accuracy->second);
}

std::string EtaText(const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_RUNNING || !job.progress().has_eta()) return "";
  return output::AgeText(output::ToDuration(job.progress().eta()));
}

// Returns how long the job ran, or has been running.
std::string TookText(const v1::Job& job, absl::Time now) {
  if (!job.has_start_time()) return "";
  const absl::Time end = job.has_end_time() ? output::ToTime(job.end_time()) : now;
  return output::AgeText(end - output::ToTime(job.start_time()));
}

std::string WorkersText(const v1::Job& job) {
  std::vector<std::string> workers;
  for (const v1::RankPlacement& rank : job.placement()) {
    const std::string worker = output::ShortName(rank.worker());
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) {
      workers.push_back(worker);
    }
  }
  return absl::StrJoin(workers, ",");
}

// Returns the first line of the description, cut to what a table can hold.
std::string DescriptionText(const v1::Job& job) {
  const std::string& text = job.resolved_spec().description();
  return output::Shortened(text.substr(0, text.find('\n')), kDescriptionWidth);
}

// Returns the reason for the state of a job that waits or has failed.
std::string WhyText(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_QUEUED && job.queue_reasons_size() > 0) {
    return job.queue_reasons(0);
  }
  if (job.state() == v1::JOB_STATE_FAILED || output::IsHeld(job)) {
    return job.failure().message().substr(0, job.failure().message().find('\n'));
  }
  return "";
}

// Returns "12..10011" for the jobs of an array.
std::string JobText(const v1::Job& job) {
  std::string first = output::ShortName(job.name());
  if (job.array_states().empty()) return first;
  return absl::StrCat(first, "..", ParseJobName(job.name())->value + job.array_size() - 1);
}

// Returns "RUNNING", or for an array "[3 running, 9,997 queued]". States of jobs that run come
// first.
std::string StateCell(const Context& context, const v1::Job& job) {
  if (job.array_states().empty()) {
    return context.terminal.Style(output::StateStyle(job.state()), output::StateText(job.state()));
  }
  std::map<v1::JobState, int32_t> counts;
  for (const v1::StateCount& count : job.array_states()) counts[count.state()] = count.jobs();
  std::vector<std::string> parts;
  for (const v1::JobState state :
       {v1::JOB_STATE_RUNNING, v1::JOB_STATE_STARTING, v1::JOB_STATE_STOPPING, v1::JOB_STATE_QUEUED,
        v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED,
        v1::JOB_STATE_SUCCEEDED}) {
    if (counts[state] == 0) continue;
    parts.push_back(context.terminal.Style(
        output::StateStyle(state), absl::StrCat(FormatCount(counts[state]), " ",
                                                absl::AsciiStrToLower(output::StateText(state)))));
  }
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

Result List(const Context& context, const ListOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, FetchJobs(context, *link, options));
  if (PrintResources(context, jobs)) return link::kOk;
  if (jobs.empty()) {
    context.Say("no jobs; `trainyard submit FILE` makes one");
    return link::kOk;
  }
  const bool is_wide = context.options.format == Format::kWide;
  std::vector<Table::Column> columns = {{"JOB", Table::Align::kRight},
                                        {"NAME"},
                                        {"STATE"},
                                        {"DEVICES", Table::Align::kRight},
                                        {"DONE", Table::Align::kRight},
                                        {"ACCURACY", Table::Align::kRight},
                                        {"ETA", Table::Align::kRight},
                                        {"TOOK", Table::Align::kRight},
                                        {"AGE", Table::Align::kRight}};
  if (is_wide) {
    for (const char* title :
         {"USER", "PROJECT", "ATTEMPT", "WORKERS", "CREATED", "TAGS", "DESCRIPTION"}) {
      columns.push_back({title});
    }
  }
  columns.push_back({"WHY"});
  Table table(std::move(columns));
  const absl::Time now = context.clock.Now();
  for (const v1::Job& job : jobs) {
    const bool is_array = !job.array_states().empty();
    std::vector<std::string> row = {JobText(job),
                                    is_array ? job.spec().name() : job.resolved_spec().name(),
                                    StateCell(context, job),
                                    output::DevicesText(job.resolved_spec()),
                                    is_array ? "" : ProgressText(job),
                                    is_array ? "" : AccuracyText(job),
                                    is_array ? "" : EtaText(job),
                                    is_array ? "" : TookText(job, now),
                                    output::AgeText(now - output::ToTime(job.create_time()))};
    if (is_wide) {
      row.insert(row.end(), {job.user(), job.resolved_spec().project(),
                             job.attempt() > 0 ? absl::StrCat(job.attempt()) : "", WorkersText(job),
                             output::TimeText(job.create_time()),
                             absl::StrJoin(job.resolved_spec().tags(), ","), DescriptionText(job)});
    }
    row.push_back(is_wide ? WhyText(job) : output::Shortened(WhyText(job), kWhyWidth));
    table.AddRow(std::move(row));
  }
  context.out << table.Render();
  return link::kOk;
}

}  // namespace

void AddList(VerbTable& verbs) {
  verbs.Add<ListOptions>(
      "ls", "List jobs, newest first", "--state running --state queued",
      [](client::Flags& flags, ListOptions& options) {
        flags.Repeated("--state", options.states, "Only jobs in this state; may be repeated");
        flags.Value("--limit", options.limit, "At most this many jobs (20)").Range(1, 1'000'000);
        flags.Switch("-a,--all", options.all, "All jobs, also those that ended long ago");
        flags.Value("--user", options.user, "Only jobs of this user");
        flags.Value("--project", options.project, "Only jobs of this project");
        flags.Value("--array", options.array, "Only the jobs of this array, one by one");
        flags.Repeated("--tag", options.tags,
                       "Only jobs with this tag; may be repeated, and then all of them");
        flags.Switch("--expand", options.expand, "The jobs of arrays one by one");
      },
      List);
}

}  // namespace trainyard::commands
