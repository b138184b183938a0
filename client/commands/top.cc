// top fetches the state of the pool once a second, and redraws its picture in place.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/top_view.h"
#include "client/commands/verbs.h"
#include "client/output/keyboard.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct TopOptions {
  bool once = false;
};

constexpr absl::Duration kRefresh = absl::Seconds(1);
// The program looks for keys this often, which seems immediate to a person.
constexpr absl::Duration kKeyWait = absl::Milliseconds(50);
constexpr int kQueueShown = 200;
constexpr int kJobsMax = 1000;

absl::StatusOr<TopData> Fetch(const Context& context, link::ServerLink& link) {
  TopData data;
  data.server = link.address();
  data.now = context.clock.Now();
  TY_ASSIGN_OR_RETURN(data.workers,
                      link.Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest()));
  v1::ListJobsRequest jobs;
  jobs.set_page_size(kJobsMax);
  for (const v1::JobState state :
       {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING}) {
    jobs.add_states(state);
  }
  TY_ASSIGN_OR_RETURN(const v1::ListJobsResponse running,
                      link.Call(&v1::JobService::Stub::ListJobs, jobs));
  data.running.assign(running.jobs().begin(), running.jobs().end());
  v1::ListQueueRequest queue;
  queue.set_page_size(kQueueShown);
  TY_ASSIGN_OR_RETURN(data.queue, link.Call(&v1::JobService::Stub::ListQueue, queue));
  TY_ASSIGN_OR_RETURN(data.shares,
                      link.Call(&v1::SharingService::Stub::ListShares, v1::ListSharesRequest()));
  return data;
}

// Redraws in place until q or Ctrl-C, even while the server does not answer.
Result Live(const Context& context, link::ServerLink& link) {
  output::Keyboard keyboard;
  context.out << "\xff[?1049h\xff[?25l";  // switches to a screen of its own and hides the cursor
  bool is_over = false;
  while (!is_over && !context.interrupt.triggered()) {
    const auto data = Fetch(context, link);
    const output::Terminal terminal = output::Resized(context.terminal);
    std::string picture = data.ok() ? RenderTop(*data, terminal, terminal.height - 1)
                                    : absl::StrCat("the server does not answer; trying again: ",
                                                   data.status().message(), "\n");
    // Each line is cleared just before it is drawn, so that the picture does not flicker.
    absl::StrReplaceAll({{"\n", absl::StrCat(output::kClearRest, "\n")}}, &picture);
    context.out << "\xff[H" << picture << "\xff[J" << context.terminal.Style("2", "q ends")
                << std::flush;
    const absl::Duration drawn = context.clock.Uptime();
    while (!is_over && context.clock.Uptime() - drawn < kRefresh &&
           !context.interrupt.triggered()) {
      const char key = keyboard.Read(kKeyWait);
      is_over = key == 'q' || key == 'Q' || key == output::kEscapeKey;
    }
  }
  context.out << "\xff[?25h\xff[?1049l" << std::flush;
  return link::kOk;
}

Result Top(const Context& context, const TopOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  const bool is_live = context.terminal.out_is_terminal && context.in_is_terminal &&
                       !options.once && context.options.format == Format::kTable;
  if (is_live) return Live(context, *link);
  TY_ASSIGN_OR_RETURN(const TopData data, Fetch(context, *link));
  output::Terminal terminal = context.terminal;
  if (!terminal.out_is_terminal) terminal.width = 1 << 20;  // a file has no width
  context.out << RenderTop(data, terminal, /*height=*/0);
  return link::kOk;
}

}  // namespace

void AddTop(VerbTable& verbs) {
  verbs.Add<TopOptions>(
      "top", "Show devices, queue and shares live; q ends it", "--once",
      [](client::Flags& flags, TopOptions& options) {
        flags.Switch("--once", options.once, "Print once and end, as without a terminal");
      },
      Top);
}

}  // namespace trainyard::commands
