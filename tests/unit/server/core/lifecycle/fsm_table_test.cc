// Renders every pair of state and input of every machine as tables, and compares them with the
// golden sections of docs/job_lifecycle.md. After an intended change, run TRAINYARD_UPDATE_GOLDEN=1
// ctest -R FsmTable, and read the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "server/core/lifecycle/attempt_fsm.h"
#include "server/core/lifecycle/job_fsm.h"
#include "server/core/lifecycle/worker_fsm.h"
#include "tests/testing/paths.h"

namespace trainyard::core {
namespace {

const std::string kDocument = testing::SourcePath("docs/job_lifecycle.md");

// Rows are inputs, columns are states. `cell` renders a transition.
template <typename State, typename Input, typename Cell>
std::string Table(const std::vector<std::pair<std::string, State>>& states,
                  const std::vector<std::pair<std::string, Input>>& inputs, Cell cell) {
  std::string text = "| input |";
  std::string line = "|---|";
  for (const auto& [name, state] : states) {
    absl::StrAppend(&text, " ", name, " |");
    line += "---|";
  }
  absl::StrAppend(&text, "\n", line, "\n");
  for (const auto& [name, input] : inputs) {
    absl::StrAppend(&text, "| ", name, " |");
    for (const auto& [state_name, state] : states) {
      absl::StrAppend(&text, " ", cell(state, input), " |");
    }
    text += "\n";
  }
  return text;
}

std::string JobCell(const job_fsm::State& state, const job_fsm::Input& input) {
  const job_fsm::Result result = job_fsm::Step(state, input);
  if (std::holds_alternative<Ignored>(result)) return "-";
  if (std::holds_alternative<Refused>(result)) return "refused";
  const auto& transition = std::get<Transition<job_fsm::State, job_fsm::Effect>>(result);
  std::string text(job_fsm::Name(transition.next));
  if (const auto* stopping = std::get_if<job_fsm::Stopping>(&transition.next)) {
    absl::StrAppend(&text, " (", Text(stopping->reason), ")");
  }
  for (const job_fsm::Effect& effect : transition.effects) {
    text += std::holds_alternative<job_fsm::CountRetry>(effect) ? ", counts a retry" : "";
  }
  return text;
}

std::string JobTable() {
  const Failure failure{FailureClass::kTransient, "", "peer lost"};
  return Table<job_fsm::State, job_fsm::Input>(
      {{"QUEUED", job_fsm::Queued{}},
       {"STARTING", job_fsm::Starting{}},
       {"RUNNING", job_fsm::Running{}},
       {"STOPPING (CANCEL)", job_fsm::Stopping{StopReason::kCancel, ""}},
       {"STOPPING (SUSPEND)", job_fsm::Stopping{StopReason::kSuspend, ""}},
       {"STOPPING (PREEMPT)", job_fsm::Stopping{StopReason::kPreempt, ""}},
       {"STOPPING (DRAIN)", job_fsm::Stopping{StopReason::kDrain, ""}},
       {"STOPPING (RESIZE)", job_fsm::Stopping{StopReason::kResize, ""}},
       {"STOPPING (TIME_LIMIT)", job_fsm::Stopping{StopReason::kTimeLimit, "limit"}},
       {"SUSPENDED", job_fsm::Suspended{}},
       {"SUCCEEDED", job_fsm::Succeeded{}},
       {"FAILED", job_fsm::Failed{failure}},
       {"CANCELLED", job_fsm::Cancelled{}}},
      {{"placed", job_fsm::Placed{}},
       {"all ranks running", job_fsm::AllRanksRunning{}},
       {"attempt succeeded", job_fsm::AttemptSucceeded{}},
       {"attempt failed, to retry", job_fsm::AttemptFailed{failure, false, false, true, 1}},
       {"attempt failed, poison", job_fsm::AttemptFailed{failure, false, true, false, 0}},
       {"attempt failed for good", job_fsm::AttemptFailed{failure, true, false, false, 0}},
       {"attempt stopped", job_fsm::AttemptStopped{}},
       {"attempt lost", job_fsm::AttemptLost{failure, 0}},
       {"cancel", job_fsm::Cancel{}},
       {"suspend", job_fsm::Suspend{}},
       {"resume", job_fsm::Resume{}},
       {"preempt", job_fsm::Preempt{}},
       {"drain", job_fsm::Drain{}},
       {"resize", job_fsm::Resize{}},
       {"time limit", job_fsm::TimeLimit{"limit"}}},
      JobCell);
}

std::string AttemptCell(const attempt_fsm::State& state, const attempt_fsm::Input& input) {
  const attempt_fsm::Result result = attempt_fsm::Step(state, input);
  if (std::holds_alternative<Ignored>(result)) return "-";
  if (std::holds_alternative<Refused>(result)) return "refused";
  const auto& next = std::get<Transition<attempt_fsm::State, attempt_fsm::Effect>>(result).next;
  std::string text(attempt_fsm::Name(next));
  if (const auto* stopping = std::get_if<attempt_fsm::Stopping>(&next)) {
    absl::StrAppend(&text, " (",
                    stopping->reason == StopReason::kNone ? Text(stopping->failure.failure_class)
                                                          : Text(stopping->reason),
                    ")");
  }
  return text;
}

std::string AttemptTable() {
  const Failure transient{FailureClass::kTransient, "", "peer lost"};
  const Failure user_error{FailureClass::kUserError, "", "bad label"};
  const Failure lost{FailureClass::kLost, "", "away"};
  return Table<attempt_fsm::State, attempt_fsm::Input>(
      {{"PLACED", attempt_fsm::Placed{}},
       {"STARTING", attempt_fsm::Starting{}},
       {"RUNNING", attempt_fsm::Running{}},
       {"STOPPING (TRANSIENT)", attempt_fsm::Stopping{StopReason::kNone, transient}},
       {"STOPPING (LOST)", attempt_fsm::Stopping{StopReason::kNone, lost}},
       {"STOPPING (CANCEL)", attempt_fsm::Stopping{StopReason::kCancel, {}}},
       {"STOPPING (PREEMPT)", attempt_fsm::Stopping{StopReason::kPreempt, {}}},
       {"STOPPING (TIME_LIMIT)", attempt_fsm::Stopping{StopReason::kTimeLimit, {}}},
       {"SUCCEEDED", attempt_fsm::Succeeded{}},
       {"FAILED", attempt_fsm::Failed{transient}},
       {"PREEMPTED", attempt_fsm::Preempted{StopReason::kPreempt}},
       {"CANCELLED", attempt_fsm::Cancelled{}},
       {"LOST", attempt_fsm::Lost{lost}}},
      {{"ranks seen", attempt_fsm::RanksSeen{}},
       {"all ranks running", attempt_fsm::AllRanksRunning{}},
       {"stop (CANCEL)", attempt_fsm::Stop{StopReason::kCancel}},
       {"stop (PREEMPT)", attempt_fsm::Stop{StopReason::kPreempt}},
       {"part failed (USER_ERROR)", attempt_fsm::PartFailed{user_error}},
       {"part failed (LOST)", attempt_fsm::PartFailed{lost}},
       {"all gone, all succeeded", attempt_fsm::AllGone{true}},
       {"all gone", attempt_fsm::AllGone{false}}},
      AttemptCell);
}

std::string WorkerTable() {
  return Table<worker_fsm::State, worker_fsm::Input>(
      {{"ACTIVE", worker_fsm::Active{}},
       {"UNREACHABLE", worker_fsm::Unreachable{1}},
       {"GONE", worker_fsm::Gone{1}}},
      {{"synced", worker_fsm::Synced{}},
       {"lease expired", worker_fsm::LeaseExpired{1}},
       {"gave up", worker_fsm::GaveUp{1}}},
      [](const worker_fsm::State& state, const worker_fsm::Input& input) -> std::string {
        const worker_fsm::Result result = worker_fsm::Step(state, input);
        if (std::holds_alternative<Ignored>(result)) return "-";
        if (std::holds_alternative<Refused>(result)) return "refused";
        return std::string(worker_fsm::Name(
            std::get<Transition<worker_fsm::State, worker_fsm::Effect>>(result).next));
      });
}

std::string SchedulingTable() {
  return Table<worker_fsm::SchedulingState, worker_fsm::SchedulingInput>(
      {{"ELIGIBLE", worker_fsm::Eligible{}},
       {"CORDONED", worker_fsm::Cordoned{}},
       {"DRAINING", worker_fsm::Draining{}}},
      {{"cordon", worker_fsm::Cordon{}},
       {"uncordon", worker_fsm::Uncordon{}},
       {"drain", worker_fsm::Drain{}}},
      [](const worker_fsm::SchedulingState& state,
         const worker_fsm::SchedulingInput& input) -> std::string {
        const worker_fsm::SchedulingResult result = worker_fsm::Step(state, input);
        using Change = Transition<worker_fsm::SchedulingState, worker_fsm::SchedulingEffect>;
        if (std::holds_alternative<Ignored>(result)) return "-";
        if (std::holds_alternative<Refused>(result)) return "refused";
        return std::string(Text(worker_fsm::FromState(std::get<Change>(result).next)));
      });
}

// Replaces the text between `<!-- begin NAME -->` and `<!-- end NAME -->`.
std::string WithSection(const std::string& document, const std::string& name,
                        const std::string& text) {
  const std::string begin = absl::StrCat("<!-- begin ", name, " -->\n");
  const std::string end = absl::StrCat("<!-- end ", name, " -->\n");
  const size_t from = document.find(begin);
  const size_t to = document.find(end);
  EXPECT_NE(from, std::string::npos) << "docs/job_lifecycle.md lacks " << begin;
  EXPECT_NE(to, std::string::npos) << "docs/job_lifecycle.md lacks " << end;
  if (from == std::string::npos || to == std::string::npos) return document;
  return document.substr(0, from + begin.size()) + text + document.substr(to);
}

TEST(FsmTable, TheDocumentShowsEveryPairOfStateAndInput) {
  const auto document = ReadFile(kDocument);
  ASSERT_TRUE(document.ok()) << document.status();
  std::string expected = *document;
  expected = WithSection(expected, "job table", JobTable());
  expected = WithSection(expected, "attempt table", AttemptTable());
  expected = WithSection(expected, "worker table", WorkerTable());
  expected = WithSection(expected, "scheduling table", SchedulingTable());
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(kDocument, expected).ok());
    return;
  }
  EXPECT_EQ(*document, expected)
      << "the machines and docs/job_lifecycle.md differ; if the change is wanted, run this test "
         "with TRAINYARD_UPDATE_GOLDEN=1 and read the difference";
}

}  // namespace
}  // namespace trainyard::core
