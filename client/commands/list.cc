// ls fetches jobs page by page and shows them as a table in which an array is one row.
#include <algorithm>
#include <optional>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/list_columns.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
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
  std::string name;
  std::string where;
  std::string sort;
  bool reverse = false;
  std::string columns;
  bool expand = false;
};

// Returns true if the list may be empty although there are jobs.
bool IsFiltered(const ListOptions& options) {
  return !options.states.empty() || !options.user.empty() || !options.project.empty() ||
         !options.array.empty() || !options.tags.empty() || !options.name.empty() ||
         !options.where.empty();
}

constexpr int kLimitDefault = 20;
constexpr int kPageSizeMax = 1000;

// Returns the names of all states: "queued", "running".
std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  for (int i = v1::JobState_MIN + 1; i <= v1::JobState_MAX; ++i) {
    names.push_back(absl::AsciiStrToLower(output::StateText(static_cast<v1::JobState>(i))));
  }
  return names;
}

// Reads the name of a state, such as "running" or "RUNNING".
absl::StatusOr<v1::JobState> ParseState(const std::string& text) {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  if (v1::JobState_Parse("JOB_STATE_" + absl::AsciiStrToUpper(text), &state) &&
      state != v1::JOB_STATE_UNSPECIFIED) {
    return state;
  }
  if (absl::StrContains(text, ',')) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a state of a job; for several states, write --state ",
                     absl::StrJoin(absl::StrSplit(text, ',', absl::SkipEmpty()), " --state ")));
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a state of a job; expected ",
                                                 absl::StrJoin(StateNames(), ", ")));
}

// The jobs that are listed, and how many more there are.
struct JobPage {
  std::vector<v1::Job> jobs;
  bool has_more = false;
  int64_t more = 0;  // 0 if the server does not count them
};

// The order that --sort asks for.
struct SortOrder {
  std::string column;  // empty if nothing was asked for
  bool is_descending = false;
  // The server sorts all jobs by metrics and fields of specs. Columns that only the client knows
  // sort what is listed.
  bool is_of_server = false;
};

SortOrder SortOrderOf(const Context& context, const ListOptions& options) {
  absl::string_view column = options.sort;
  SortOrder order;
  order.is_descending = absl::ConsumePrefix(&column, "-") != options.reverse;
  order.column = std::string(column);
  order.is_of_server = !order.column.empty() && !IsColumnOfList(context, order.column);
  return order;
}

absl::StatusOr<JobPage> FetchJobs(const Context& context, link::ServerLink& link,
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
  // Only some jobs of an array may be meant, or be first.
  const SortOrder order = SortOrderOf(context, options);
  request.set_group_arrays(context.options.IsTable() && !options.expand && options.array.empty() &&
                           options.where.empty() && !order.is_of_server);
  request.set_where(options.where);
  if (order.is_of_server) {
    request.set_order_by(absl::StrCat(order.column, order.is_descending ? " desc" : ""));
  }
  const int limit = options.limit > 0 ? options.limit : options.all ? INT32_MAX : kLimitDefault;
  request.set_job_name(options.name);
  request.set_count_more(true);
  JobPage found;
  std::vector<v1::Job>& jobs = found.jobs;
  while (static_cast<int64_t>(jobs.size()) < limit) {
    request.set_page_size(std::min(limit - static_cast<int>(jobs.size()), kPageSizeMax));
    TY_ASSIGN_OR_RETURN(v1::ListJobsResponse page,
                        link.Call(&v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
    found.has_more = !page.next_page_token().empty();
    found.more = page.more_jobs();
    if (!found.has_more) break;
    request.set_page_token(page.next_page_token());
  }
  return found;
}

// Says how many jobs the table leaves out, since nobody can see it otherwise.
void TellMore(const Context& context, const ListOptions& options, const JobPage& page) {
  if (!page.has_more) return;
  const std::string how = options.all ? "" : "; `trainyard ls --all` lists all, --limit N more";
  context.Say(absl::StrCat(
      page.more > 0 ? absl::StrCat("... and ", FormatCount(page.more), " more") : "... and more",
      how));
}

Result List(const Context& context, const ListOptions& options) {
  const absl::Time now = context.clock.Now();
  std::vector<std::string> names = UsualColumns(context.options.format == Format::kWide);
  if (!options.columns.empty()) names = absl::StrSplit(options.columns, ',');
  std::vector<ListColumn> columns;
  std::vector<Table::Column> heads;
  for (const std::string& name : names) {
    TY_ASSIGN_OR_RETURN(ListColumn column, ColumnOf(context, name, now));
    heads.push_back(column.head);
    columns.push_back(std::move(column));
  }
  std::optional<ListColumn> order;
  const SortOrder sort = SortOrderOf(context, options);
  if (!sort.column.empty()) {
    TY_ASSIGN_OR_RETURN(order, ColumnOf(context, sort.column, now));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(JobPage page, FetchJobs(context, *link, options));
  std::vector<v1::Job>& jobs = page.jobs;
  if (order.has_value()) {
    SortBy(*order, sort.is_descending, jobs);
  } else if (options.reverse) {
    std::reverse(jobs.begin(), jobs.end());
  }
  if (PrintResources(context, jobs)) {
    TellMore(context, options, page);
    return link::kOk;
  }
  if (jobs.empty()) {
    context.Say(IsFiltered(options) ? "no such jobs; `trainyard ls -a` lists all"
                                    : "no jobs; `trainyard submit FILE` makes one");
    return link::kOk;
  }
  Table table(std::move(heads));
  for (const v1::Job& job : jobs) {
    std::vector<std::string> row;
    row.reserve(columns.size());
    for (const ListColumn& column : columns) row.push_back(column.text(job));
    table.AddRow(std::move(row));
  }
  // A line that is wider than the terminal would be wrapped, and the table torn.
  const bool is_cut = context.terminal.out_is_terminal && context.options.format == Format::kTable;
  for (const absl::string_view line : absl::StrSplit(table.Render(), '\n', absl::SkipEmpty())) {
    context.out << (is_cut ? output::Fitted(line, context.terminal.width) : std::string(line))
                << "\n";
  }
  context.out << std::flush;
  TellMore(context, options, page);
  return link::kOk;
}

}  // namespace

void AddList(VerbTable& verbs) {
  verbs.Add<ListOptions>(
      "ls", "List jobs, newest first",
      "--state running --state queued\n"
      "  trainyard ls --name 'sweep-*' --columns job,lr,accuracy --sort accuracy --reverse\n"
      "  trainyard ls --where 'test.accuracy > 0.9 and model = resnet' --sort -test.accuracy",
      [](client::Flags& flags, ListOptions& options) {
        flags.Repeated("--state", options.states, "Only jobs in this state; may be repeated")
            .Offers(StateNames());
        flags.Value("--limit", options.limit, "At most this many jobs (20)").Range(1, 1'000'000);
        flags.Switch("-a,--all", options.all, "All jobs, also those that ended long ago");
        flags.Value("--user", options.user, "Only jobs of this user");
        flags.Value("--project", options.project, "Only jobs of this project");
        flags.Value("--array", options.array, "Only the jobs of this array, one by one");
        flags.Repeated("--tag", options.tags,
                       "Only jobs with this tag; may be repeated, and then all of them");
        flags.Value("--name", options.name,
                    "Only jobs of this name, in which * stands for any text: 'sweep-*'");
        flags
            .Value("--where", options.where,
                   "Only jobs of which this is true: 'test.accuracy > 0.9 and not tag = bad'")
            .ShownAs("EXPRESSION");
        flags
            .Value("--sort", options.sort,
                   "Sort all jobs by a metric or a field of the spec, or those that are listed by "
                   "a column; with a - before it, the largest first")
            .ShownAs("[-]COLUMN");
        flags.Switch("--reverse", options.reverse, "The other way round");
        flags.Value("--columns", options.columns,
                    "Columns, metrics, and fields of the spec by their path or its last word: "
                    "id,name,lr,train.epochs,test.accuracy");
        flags.Switch("--expand", options.expand, "The jobs of arrays one by one");
      },
      List);
}

}  // namespace trainyard::commands
