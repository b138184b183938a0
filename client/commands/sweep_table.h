// Shows sweeps and their trials as text. These are pure functions, so that tests can look at what
// comes out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/output/terminal.h"
#include "trainyard/v1/sweep_service.pb.h"

namespace trainyard::commands {

// Returns "RUNNING" and so on, in its colour.
std::string SweepStateText(const output::Terminal& terminal, v1::SweepState state);
// Returns "asha" and so on, as in a spec.
std::string SweepSearchText(v1::SweepSearch search);
// Returns the name of the metric by which trials are judged.
std::string ObjectiveOf(const v1::SweepSpec& spec);

// Returns a name for each parameter that is searched: as many words from the end of its path as
// tell it from the others, such as "lr" for optimizer.sgd.lr.
std::map<std::string, std::string> ParameterNames(const v1::SweepSpec& spec);
// Returns a value with four significant digits. `json` is 0.0316227, "relu" or a list.
std::string ParameterText(absl::string_view json);

// Returns the best trial, or null if none has told a value.
const v1::SweepTrial* BestTrial(const v1::Sweep& sweep);
// Returns the trials, the best one first. Those with NaN come after all numbers, and those without
// a value last.
std::vector<const v1::SweepTrial*> TrialsBestFirst(const v1::Sweep& sweep);

// Returns lines of labels and texts: the state, the search, the objective, the parameters, the
// budget, what is done so far, and warnings.
std::string SweepSheet(const v1::Sweep& sweep, const output::Terminal& terminal);
// Returns one line: the name, the state, the numbers of trials and the best value.
std::string SweepLine(const v1::Sweep& sweep, const output::Terminal& terminal);
// Returns a line for each rung that says how much of the training it is, how many trials have told
// a value there, and how many went on. It is empty for a search without rungs.
std::string RungLadder(const v1::Sweep& sweep);
// Returns the table of the trials, the best one first; at most `rows_max` of them, or all for 0.
std::string TrialTable(const v1::Sweep& sweep, const output::Terminal& terminal, size_t rows_max);
// Returns the table of the values that the trials have, in order of their indices.
std::string TrialValues(const v1::Sweep& sweep);

// Returns the table of several sweeps. Those that come with their best trial show its job.
std::string SweepTable(const std::vector<v1::Sweep>& sweeps, const output::Terminal& terminal,
                       absl::Time now);

// Returns a decision with its time: "2026-11-28 04:14:02 UTC  trial 3 goes on to rung 2: ...".
std::string DecisionLine(const v1::SweepDecision& decision);

}  // namespace trainyard::commands
