// Asks for the sweep again and again, and shows what has changed.
#include "client/commands/sweep_follow.h"

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/sweep_selector.h"
#include "client/commands/sweep_table.h"
#include "client/link/follower.h"
#include "client/output/text.h"
#include "common/base/escape.h"

namespace trainyard::commands {
namespace {

// Trials train for minutes, so a second later is soon enough. A sweep of thousands of trials takes
// longer to fetch, and is fetched less often.
constexpr absl::Duration kSweepInterval = absl::Seconds(1);
constexpr absl::Duration kSweepIntervalMax = absl::Seconds(30);
constexpr int kFetchesApart = 20;

// Shows the states of one sweep, one after the other. It borrows the context.
class SweepReporter {
 public:
  SweepReporter(const Context& context, bool prints_decisions)
      : context_(context), prints_decisions_(prints_decisions) {}

  // Returns the sequence behind which it has to be told the decisions; nothing if it tells none.
  std::optional<int64_t> decisions_after() const {
    return prints_decisions_ || !draws() ? std::optional(told_) : std::nullopt;
  }

  void OnSweep(const v1::Sweep& sweep) {
    for (const v1::SweepDecision& decision : sweep.decisions()) {
      if (decision.sequence() <= told_) continue;
      told_ = decision.sequence();
      if (prints_decisions_) {
        context_.out << DecisionLine(decision) << std::flush;
      } else {
        context_.Say(decision.text());
      }
    }
    if (draws()) Draw(sweep);
  }

  void OnConnection(bool is_back) {
    Clear();
    context_.Say(is_back ? "the server is back; following continues"
                         : "the connection to the server is lost; the sweep keeps running, and "
                           "following continues when the server is back (Ctrl-C to stop "
                           "following)");
  }

  // Removes the table, so that other text can stand in its place.
  void Clear() {
    if (lines_ == 0) return;
    context_.err << kEscape << "[" << lines_ << "A" << kEscape << "[J" << std::flush;
    lines_ = 0;
  }

 private:
  bool draws() const {
    return context_.terminal.err_is_terminal && !prints_decisions_ && !context_.options.quiet;
  }

  void Draw(const v1::Sweep& sweep) {
    const output::Terminal terminal = output::Resized(context_.terminal);
    const std::string head = absl::StrCat(SweepLine(sweep, terminal), RungLadder(sweep), "\n");
    const auto head_lines = std::count(head.begin(), head.end(), '\n');
    // The line of titles and the line of the cursor take a row each.
    const auto room = std::max<int64_t>(terminal.height - head_lines - 2, 3);
    const std::string text =
        absl::StrCat(head, TrialTable(sweep, terminal, static_cast<size_t>(room)));
    Clear();
    for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
      // A line that is wrapped would take two, and the table would move down with each drawing.
      context_.err << output::Fitted(line, terminal.width - 1) << "\n";
      ++lines_;
    }
    context_.err << std::flush;
  }

  const Context& context_;
  const bool prints_decisions_;
  int64_t told_ = 0;  // the last decision that was shown
  int lines_ = 0;     // that are drawn
};

}  // namespace

link::ExitCode SweepExitCode(const v1::Sweep& sweep) {
  return sweep.state() == v1::SWEEP_STATE_RUNNING || sweep.state() == v1::SWEEP_STATE_SUCCEEDED
             ? link::kOk
             : link::kJobEndedBadly;
}

absl::StatusOr<std::optional<v1::Sweep>> FollowSweep(const Context& context, link::ServerLink& link,
                                                     const std::string& name,
                                                     bool prints_decisions) {
  SweepReporter reporter(context, prints_decisions);
  std::optional<absl::Duration> lost_at;
  while (true) {
    const absl::Duration begin = context.clock.Uptime();
    auto sweep = FetchSweep(link, name, reporter.decisions_after());
    const absl::Duration end = context.clock.Uptime();
    if (sweep.ok()) {
      if (lost_at.has_value()) reporter.OnConnection(/*is_back=*/true);
      lost_at.reset();
      reporter.OnSweep(*sweep);
      if (sweep->state() != v1::SWEEP_STATE_RUNNING) {
        reporter.Clear();
        return *std::move(sweep);
      }
    } else if (!context.interrupt.triggered()) {
      if (!absl::IsUnavailable(sweep.status())) return sweep.status();
      if (!lost_at.has_value()) {
        lost_at = end;
        reporter.OnConnection(/*is_back=*/false);
      }
      if (end - *lost_at > link::kReconnectFor) return sweep.status();
    }
    const absl::Duration pause =
        std::clamp(kFetchesApart * (end - begin), kSweepInterval, kSweepIntervalMax);
    if (!context.interrupt.WaitFor(pause)) continue;
    const std::string id = output::ShortName(name);
    context.err << "\nstopped following; " << name << " continues\n  trainyard sweep show " << id
                << " -f     follows it again\n  trainyard sweep stop " << id << "        stops it\n"
                << std::flush;
    return std::nullopt;
  }
}

}  // namespace trainyard::commands
