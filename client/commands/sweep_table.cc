// Lays out sweeps as text: the sheet about one, the ladder of its rungs, and tables.
#include "client/commands/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/commands/sheet.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/columns.h"
#include "common/base/duration.h"
#include "common/base/strings.h"
#include "common/spec/parse_json.h"

namespace trainyard::commands {
namespace {

using output::Table;
using output::Terminal;

constexpr int kParameterWidth = 24;
constexpr int kTrialFailureWidth = 60;

// Returns the name of an enum's value without the prefix of its enum. A newer server may have
// values without a name here.
std::string EnumWord(absl::string_view name, absl::string_view prefix) {
  return name.empty() ? "UNKNOWN" : std::string(absl::StripPrefix(name, prefix));
}

std::string TrialStateText(const Terminal& terminal, v1::TrialState state) {
  const std::string name = EnumWord(v1::TrialState_Name(state), "TRIAL_STATE_");
  switch (state) {
    case v1::TRIAL_STATE_ACTIVE:
    case v1::TRIAL_STATE_SUCCEEDED:
      return terminal.Style("32", name);
    case v1::TRIAL_STATE_FAILED:
      return terminal.Style("31", name);
    case v1::TRIAL_STATE_PAUSED:
      return terminal.Style("33", name);
    default:
      return terminal.Style("2", name);
  }
}

// Returns the last `words` words of a path, or all of it if there are no more.
std::string LastWords(const std::string& path, int words) {
  size_t begin = path.size();
  while (words-- > 0) {
    const size_t dot = begin == 0 ? std::string::npos : path.rfind('.', begin - 1);
    if (dot == std::string::npos) return path;
    begin = dot;
  }
  return path.substr(begin + 1);
}

bool IsBetter(const v1::SweepSpec& spec, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return spec.has_maximize() ? a > b : a < b;
}

std::string SearchLine(const v1::Sweep& sweep) {
  const v1::SweepSpec& spec = sweep.spec().sweep();
  std::vector<std::string> parts = {SweepSearchText(spec.search())};
  if (sweep.trials_total() > 0) {
    parts.push_back(absl::StrCat(FormatCount(sweep.trials_total()), " trials"));
  }
  if (sweep.concurrent() > 0) {
    parts.push_back(absl::StrCat(FormatCount(sweep.concurrent()), " at a time"));
  }
  if (spec.search() != v1::SWEEP_SEARCH_GRID) parts.push_back(absl::StrCat("seed ", spec.seed()));
  return absl::StrJoin(parts, ", ");
}

// Returns the conditions under which the sweep ends early.
std::string EndsText(const v1::SweepSpec& spec) {
  std::vector<std::string> parts;
  if (spec.has_budget()) {
    parts.push_back(
        absl::StrCat("after ", DurationText(output::ToDuration(spec.budget())), " of device time"));
  }
  if (spec.has_target()) {
    parts.push_back(absl::StrCat("once ", ObjectiveOf(spec), " is ",
                                 output::NumberText(spec.target()), " or better"));
  }
  if (spec.patience() > 0) {
    parts.push_back(absl::StrCat("once ", spec.patience(), " trials in a row were no better"));
  }
  return absl::StrJoin(parts, "\n");
}

std::string BestText(const v1::Sweep& sweep) {
  const v1::SweepTrial* best = BestTrial(sweep);
  if (best == nullptr) return "";
  return absl::StrCat(output::NumberText(best->value()), " by trial ", best->index(),
                      best->job().empty() ? "" : absl::StrCat(", ", best->job()));
}

// Returns nothing for a sweep whose trials have not run yet.
std::string DeviceTimeText(const v1::Sweep& sweep) {
  const absl::Duration time = output::ToDuration(sweep.device_time());
  return time == absl::ZeroDuration() ? "" : DurationText(time);
}

// Returns the part of the training in words: "1/16 of the training".
std::string RungShareText(double share) {
  if (share > 1 - 1e-9) return "the whole training";
  const double parts = share > 0 ? 1 / share : 0;
  const double whole = std::round(parts);
  if (whole >= 2 && std::abs(parts - whole) < 0.01 * whole) {
    return absl::StrCat("1/", static_cast<int64_t>(whole), " of the training");
  }
  return absl::StrCat(output::NumberText(100 * share), "% of the training");
}

// Returns the columns of the values, with the path of each.
std::vector<std::pair<std::string, Table::Column>> ValueColumns(const v1::SweepSpec& spec) {
  std::vector<std::pair<std::string, Table::Column>> columns;
  for (const auto& [path, name] : ParameterNames(spec)) {
    columns.push_back({path, {absl::AsciiStrToUpper(name), Table::Align::kRight}});
  }
  return columns;
}

std::string ValueCell(const v1::SweepTrial& trial, const std::string& path) {
  const auto found = trial.values().find(path);
  return found == trial.values().end()
             ? ""
             : output::Shortened(ParameterText(found->second), kParameterWidth);
}

}  // namespace

std::string SweepStateText(const Terminal& terminal, v1::SweepState state) {
  const std::string name = EnumWord(v1::SweepState_Name(state), "SWEEP_STATE_");
  return terminal.Style(state == v1::SWEEP_STATE_FAILED    ? "31"
                        : state == v1::SWEEP_STATE_STOPPED ? "2"
                                                           : "32",
                        name);
}

std::string SweepSearchText(v1::SweepSearch search) {
  if (search == v1::SWEEP_SEARCH_UNSPECIFIED) return "";
  return absl::AsciiStrToLower(EnumWord(v1::SweepSearch_Name(search), "SWEEP_SEARCH_"));
}

std::string ObjectiveOf(const v1::SweepSpec& spec) {
  return spec.has_maximize() ? spec.maximize() : spec.minimize();
}

std::map<std::string, std::string> ParameterNames(const v1::SweepSpec& spec) {
  std::map<std::string, std::string> names;
  for (const auto& [path, text] : spec.parameters()) {
    int words = 1;
    const auto is_taken = [&](const auto& other) {
      return other.first != path && LastWords(other.first, words) == LastWords(path, words);
    };
    while (LastWords(path, words) != path &&
           std::any_of(spec.parameters().begin(), spec.parameters().end(), is_taken)) {
      ++words;
    }
    names[path] = LastWords(path, words);
  }
  return names;
}

std::string ParameterText(absl::string_view json) {
  const auto value = spec::ParseJson(json);
  if (!value.has_value()) return std::string(json);
  if (value->is_string()) return value->get<std::string>();
  return value->is_number_float() ? output::NumberText(value->get<double>()) : std::string(json);
}

const v1::SweepTrial* BestTrial(const v1::Sweep& sweep) {
  for (const v1::SweepTrial& trial : sweep.trials()) {
    if (trial.index() == sweep.best_trial() && trial.has_value()) return &trial;
  }
  return nullptr;
}

std::vector<const v1::SweepTrial*> TrialsBestFirst(const v1::Sweep& sweep) {
  std::vector<const v1::SweepTrial*> trials;
  for (const v1::SweepTrial& trial : sweep.trials()) trials.push_back(&trial);
  std::stable_sort(trials.begin(), trials.end(), [&](const auto* a, const auto* b) {
    if (a->has_value() != b->has_value()) return a->has_value();
    return a->has_value() && IsBetter(sweep.spec().sweep(), a->value(), b->value());
  });
  return trials;
}

std::string SweepSheet(const v1::Sweep& sweep, const Terminal& terminal) {
  const v1::SweepSpec& spec = sweep.spec().sweep();
  std::ostringstream out;
  Sheet sheet(out);
  sheet.Line("sweep", absl::StrCat(sweep.name(), "  ", sweep.title()));
  sheet.Line("state", SweepStateText(terminal, sweep.state()));
  sheet.Line("", sweep.reason());
  sheet.Line("user", absl::StrCat(sweep.user(), sweep.project().empty() ? "" : ", project ",
                                  sweep.project()));
  sheet.Line("search", SearchLine(sweep));
  sheet.Line("objective", absl::StrCat(spec.has_maximize() ? "the largest " : "the smallest ",
                                       ObjectiveOf(spec)));
  const std::map<std::string, std::string> parameters(spec.parameters().begin(),
                                                      spec.parameters().end());
  sheet.Line("parameters", absl::StrJoin(parameters, "\n", absl::PairFormatter(" = ")));
  sheet.Line("ends early", EndsText(spec));
  sheet.Line("began", output::TimeText(sweep.create_time()));
  if (sweep.has_end_time()) {
    sheet.Line("ended", absl::StrCat(output::TimeText(sweep.end_time()), ", after ",
                                     DurationText(output::ToTime(sweep.end_time()) -
                                                  output::ToTime(sweep.create_time()))));
  }
  sheet.Line("trials", absl::StrCat(FormatCount(sweep.trials_begun()), " of ",
                                    FormatCount(sweep.trials_total()), " have begun, ",
                                    FormatCount(sweep.trials_ended()), " have ended"));
  sheet.Line("device time", DeviceTimeText(sweep));
  sheet.Line("best", BestText(sweep));
  sheet.Line("warning", absl::StrJoin(sweep.warnings(), "\n"));
  return out.str();
}

std::string SweepLine(const v1::Sweep& sweep, const Terminal& terminal) {
  std::vector<std::string> parts = {
      absl::StrCat(terminal.Style("1", sweep.name()), "  ", sweep.title()),
      SweepStateText(terminal, sweep.state()),
      absl::StrCat(FormatCount(sweep.trials_begun()), " of ", FormatCount(sweep.trials_total()),
                   " trials begun, ", FormatCount(sweep.trials_ended()), " ended")};
  const std::string best = BestText(sweep);
  if (!best.empty()) parts.push_back(absl::StrCat("best ", best));
  return absl::StrCat(absl::StrJoin(parts, "   "), "\n");
}

std::string RungLadder(const v1::Sweep& sweep) {
  const int rungs = sweep.rungs_size();
  std::vector<int> reported(static_cast<size_t>(rungs));
  std::vector<int> went_on(static_cast<size_t>(rungs));
  for (const v1::SweepTrial& trial : sweep.trials()) {
    std::set<int> told;
    for (const v1::TrialReport& report : trial.reports()) {
      if (report.rung() >= 0 && report.rung() < rungs) told.insert(report.rung());
    }
    for (const int rung : told) {
      ++reported[static_cast<size_t>(rung)];
      if (trial.rung() > rung) ++went_on[static_cast<size_t>(rung)];
    }
  }
  const int most = rungs == 0 ? 0 : *std::max_element(reported.begin(), reported.end());
  const int digits = static_cast<int>(absl::StrCat(most).size());
  std::vector<std::vector<std::string>> rows;
  for (int rung = 0; rung < rungs; ++rung) {
    const auto place = static_cast<size_t>(rung);
    std::string counts = absl::StrFormat(" %*d reported", digits, reported[place]);
    if (rung + 1 < rungs) absl::StrAppendFormat(&counts, ", %d went on", went_on[place]);
    rows.push_back({absl::StrCat("rung ", rung), RungShareText(sweep.rungs(rung)), counts});
  }
  return rows.empty() ? "" : AlignColumns(rows, "lll");
}

std::string TrialTable(const v1::Sweep& sweep, const Terminal& terminal, size_t rows_max) {
  constexpr auto kRight = Table::Align::kRight;
  const v1::SweepSpec& spec = sweep.spec().sweep();
  const std::vector<const v1::SweepTrial*> trials = TrialsBestFirst(sweep);
  const bool has_rungs = sweep.rungs_size() > 0;
  const bool has_copies = spec.search() == v1::SWEEP_SEARCH_PBT;
  const bool has_failures = std::any_of(
      trials.begin(), trials.end(), [](const auto* trial) { return !trial->failure().empty(); });
  std::vector<Table::Column> columns = {{"TRIAL", kRight}};
  const auto values = ValueColumns(spec);
  for (const auto& [path, column] : values) columns.push_back(column);
  columns.push_back({"STATE"});
  if (has_rungs) columns.push_back({"RUNG", kRight});
  columns.push_back({absl::AsciiStrToUpper(ObjectiveOf(spec)), kRight});
  columns.push_back({"STEP", kRight});
  columns.push_back({"JOB", kRight});
  if (has_copies) columns.push_back({"COPY OF", kRight});
  if (has_failures) columns.push_back({"WHY"});
  Table table(std::move(columns));
  const size_t shown = rows_max == 0 || trials.size() <= rows_max
                           ? trials.size()
                           : std::max<size_t>(rows_max, 2) - 1;
  const v1::SweepTrial* best = BestTrial(sweep);
  for (size_t i = 0; i < shown; ++i) {
    const v1::SweepTrial& trial = *trials[i];
    const std::string index = absl::StrCat(trial.index());
    std::vector<std::string> row = {&trial == best ? terminal.Style("1", index) : index};
    for (const auto& [path, column] : values) row.push_back(ValueCell(trial, path));
    row.push_back(TrialStateText(terminal, trial.state()));
    if (has_rungs) row.push_back(absl::StrCat(trial.rung()));
    row.push_back(trial.has_value() ? output::NumberText(trial.value()) : "");
    const int64_t step = trial.has_value() ? trial.step() : trial.progress_step();
    row.push_back(step > 0 ? FormatCount(step) : "");
    row.push_back(output::ShortName(trial.job()));
    if (has_copies) row.push_back(trial.copied_from() < 0 ? "" : absl::StrCat(trial.copied_from()));
    if (has_failures) row.push_back(output::Shortened(trial.failure(), kTrialFailureWidth));
    table.AddRow(std::move(row));
  }
  std::string text = table.Render();
  if (shown < trials.size()) {
    absl::StrAppend(&text, "  ... and ", FormatCount(static_cast<int64_t>(trials.size() - shown)),
                    " more\n");
  }
  return text;
}

std::string TrialValues(const v1::Sweep& sweep) {
  std::vector<Table::Column> columns = {{"TRIAL", Table::Align::kRight}};
  const auto values = ValueColumns(sweep.spec().sweep());
  for (const auto& [path, column] : values) columns.push_back(column);
  Table table(std::move(columns));
  for (const v1::SweepTrial& trial : sweep.trials()) {
    std::vector<std::string> row = {absl::StrCat(trial.index())};
    for (const auto& [path, column] : values) row.push_back(ValueCell(trial, path));
    table.AddRow(std::move(row));
  }
  return table.Render();
}

std::string SweepTable(const std::vector<v1::Sweep>& sweeps, const Terminal& terminal,
                       absl::Time now) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"SWEEP", kRight},
               {"NAME"},
               {"USER"},
               {"SEARCH"},
               {"STATE"},
               {"BEGUN", kRight},
               {"ENDED", kRight},
               {"TRIALS", kRight},
               {"BEST", kRight},
               {"JOB", kRight},
               {"DEVICE TIME", kRight},
               {"AGE", kRight}});
  for (const v1::Sweep& sweep : sweeps) {
    const v1::SweepTrial* best = BestTrial(sweep);
    table.AddRow({output::ShortName(sweep.name()), sweep.title(), sweep.user(),
                  SweepSearchText(sweep.spec().sweep().search()),
                  SweepStateText(terminal, sweep.state()), absl::StrCat(sweep.trials_begun()),
                  absl::StrCat(sweep.trials_ended()), absl::StrCat(sweep.trials_total()),
                  sweep.best_trial() < 0 || sweep.trials_begun() == 0
                      ? ""
                      : output::NumberText(sweep.best_value()),
                  best == nullptr ? "" : output::ShortName(best->job()), DeviceTimeText(sweep),
                  output::AgeText(now - output::ToTime(sweep.create_time()))});
  }
  return table.Render();
}

std::string DecisionLine(const v1::SweepDecision& decision) {
  return absl::StrCat(output::TimeText(decision.time()), "  ", decision.text(), "\n");
}

}  // namespace trainyard::commands
