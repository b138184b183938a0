// watch follows one job as `run` does, or several jobs on a board with a line for each.
#include <algorithm>
#include <map>
#include <ostream>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client/commands/follow.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/link/follower.h"
#include "client/output/text.h"
#include "common/base/escape.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct WatchOptions {
  std::vector<std::string> jobs;  // empty means all jobs
};

constexpr absl::Duration kWatchDrawInterval = absl::Milliseconds(250);
// The board has no more lines than fit on a screen.
constexpr size_t kLinesMax = 30;

// Shows several jobs at once: as a line for each job that is redrawn in place on a terminal, and as
// a line for each change of state elsewhere. It borrows the context.
class Board {
 public:
  explicit Board(const Context& context) : context_(context) {}

  void OnJob(const v1::Job& job) {
    const auto id = ParseJobName(job.name());
    if (!id.ok()) return;
    const auto [known, is_new] = jobs_.emplace(id->value, job);
    const v1::JobState before = is_new ? v1::JOB_STATE_UNSPECIFIED : known->second.state();
    known->second = job;
    is_dirty_ = true;
    if (context_.terminal.err_is_terminal || before == job.state()) return;
    // Jobs that had ended before are not shown.
    if (is_new && output::IsFinal(job.state()) && is_first_) return;
    context_.out << Line(job) << "\n" << std::flush;
  }
  void EndOfSnapshot() { is_first_ = false; }

  void Draw() {
    const absl::Duration now = context_.clock.Uptime();
    if (!context_.terminal.err_is_terminal || !is_dirty_ || now - last_draw_ < kWatchDrawInterval)
      return;
    last_draw_ = now;
    is_dirty_ = false;
    if (lines_drawn_ > 0) context_.err << kEscape << "[" << lines_drawn_ << "A";
    lines_drawn_ = 0;
    size_t left_out = 0;
    // A line that is wrapped would take two, and the board would move down with each drawing.
    const output::Terminal terminal = output::Resized(context_.terminal);
    const size_t lines_max =
        std::min(kLinesMax, static_cast<size_t>(std::max(terminal.height - 2, 1)));
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
      if (lines_drawn_ >= lines_max) {
        ++left_out;
        continue;
      }
      context_.err << output::kLineStart << output::Fitted(Line(it->second), terminal.width - 1)
                   << output::kClearRest << "\n";
      ++lines_drawn_;
    }
    if (left_out > 0) {
      context_.err << output::kLineStart << "... and " << Counted(left_out, "older job")
                   << output::kClearRest << "\n";
      ++lines_drawn_;
    }
    context_.err << std::flush;
  }

 private:
  std::string Line(const v1::Job& job) const {
    std::string state = output::StateText(job.state());
    state.resize(std::max<size_t>(state.size(), 9), ' ');
    std::string line = absl::StrCat(output::ShortName(job.name()), "  ",
                                    context_.terminal.Style(output::StateStyle(job.state()), state),
                                    "  ", job.resolved_spec().name());
    if (!job.queue_reasons().empty()) {
      absl::StrAppend(&line, "  ", job.queue_reasons(0));
    } else if (job.state() == v1::JOB_STATE_RUNNING) {
      absl::StrAppend(&line, "  ", output::ProgressTextLine(output::ViewOf(job.progress())));
    }
    return line;
  }

  const Context& context_;
  std::map<int64_t, v1::Job> jobs_;
  bool is_first_ = true;
  bool is_dirty_ = false;
  size_t lines_drawn_ = 0;
  absl::Duration last_draw_ = -absl::InfiniteDuration();
};

Result Watch(const Context& context, const WatchOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(*link, options.jobs));
  if (names.size() == 1) return FollowJob(context, *link, names.front());
  Board board(context);
  std::map<std::string, v1::JobState> ended;
  link::Follower follower(*link, context.clock, context.rng, {.names = names, .metrics_of = ""});
  while (names.empty() || ended.size() < names.size()) {
    if (context.interrupt.triggered()) return link::kInterrupted;
    auto update = follower.Next(absl::Milliseconds(100));
    if (update.has_value()) {
      if (const auto* end = std::get_if<link::End>(&*update)) return end->status;
      if (const auto* connection = std::get_if<link::Connection>(&*update)) {
        context.Say(connection->is_back ? "the server is back"
                                        : "the connection to the server is lost; trying again");
      }
      if (const auto* job = std::get_if<v1::Job>(&*update)) {
        board.OnJob(*job);
        if (output::HasEnded(*job)) ended[job->name()] = job->state();
      }
    } else {
      board.EndOfSnapshot();
    }
    board.Draw();
  }
  for (const auto& [name, state] : ended) {
    if (state != v1::JOB_STATE_SUCCEEDED) return link::kJobEndedBadly;
  }
  return link::kOk;
}

}  // namespace

void AddWatch(VerbTable& verbs) {
  verbs.Add<WatchOptions>(
      "watch", "Follow jobs live", "last",
      [](client::Flags& flags, WatchOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp);
      },
      Watch);
}

}  // namespace trainyard::commands
