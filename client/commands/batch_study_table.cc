// Lays out the rows of a batch-size study.
#include "client/commands/batch_study_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output/metric_direction.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using StudyJson = nlohmann::ordered_json;
using output::Table;

std::string NumberOrNone(const std::optional<double>& number) {
  return number.has_value() ? output::NumberText(*number) : "";
}

std::string EpochsText(const std::optional<double>& epochs) {
  return epochs.has_value() ? absl::StrFormat("%.3g", *epochs) : "";
}

std::string ShareText(const std::optional<double>& share) {
  return share.has_value() ? absl::StrFormat("%.0f%%", *share * 100) : "";
}

std::string TimeToTargetText(const std::optional<double>& seconds) {
  return seconds.has_value() ? DurationText(absl::Seconds(*seconds)) : "";
}

std::string NoteOf(const StudyRow& row, const std::optional<StudyTarget>& target) {
  if (!row.run.failure.empty()) return row.run.failure;
  if (row.is_knee) return "knee";
  if (!target.has_value()) return "told no value";
  return row.steps.has_value() ? "" : "did not reach the target";
}

// Says in a sentence how far larger batches of an optimizer pay.
std::string KneeText(const BatchStudy& study, const std::string& optimizer) {
  const std::vector<const StudyRow*> rows = study.RowsOf(optimizer);
  const auto knee =
      std::find_if(rows.begin(), rows.end(), [](const StudyRow* row) { return row->is_knee; });
  if (knee == rows.end()) {
    return absl::StrCat(optimizer, ": no knee, because fewer than two batches can be compared\n");
  }
  const int64_t batch = (*knee)->run.batch;
  const std::string share =
      absl::StrFormat("%.0f%% as fast as with perfect scaling", kKneeScaling * 100);
  const auto has_reached = [](const StudyRow* row) { return row->steps.has_value(); };
  const bool has_smaller = std::any_of(rows.begin(), knee, has_reached);
  const auto is_behind = [&](const StudyRow* row) {
    return has_reached(row) || row->run.failure.empty();
  };
  if (std::none_of(std::next(knee), rows.end(), is_behind)) {
    return absl::StrCat(
        optimizer, ": up to batch ", batch,
        ", the largest that can be compared, the steps to the target fall at least ", share,
        "; the knee may lie beyond it\n");
  }
  if (!has_smaller) {
    return absl::StrCat(optimizer, ": the knee is at batch ", batch,
                        "; with the next larger one, the steps to the target fall less than ",
                        share, "\n");
  }
  return absl::StrCat(optimizer, ": the knee is at batch ", batch,
                      ", up to which the steps to the target fall at least ", share, "\n");
}

template <typename Number>
StudyJson NullOr(const std::optional<Number>& number) {
  return number.has_value() ? StudyJson(*number) : StudyJson(nullptr);
}

StudyJson RowsJson(const BatchStudy& study) {
  StudyJson rows = StudyJson::array();
  for (const StudyRow& row : study.rows) {
    StudyJson json;
    json["optimizer"] = row.run.optimizer;
    json["batch"] = row.run.batch;
    json["lr"] = row.run.lr;
    json["job"] = row.run.job;
    json["state"] = row.run.state;
    json["failure"] = row.run.failure;
    json["best"] = NullOr(row.best);
    json["steps"] = NullOr(row.steps);
    json["epochs"] = NullOr(row.epochs);
    json["seconds"] = NullOr(row.seconds);
    json["samples_per_s"] = NullOr(row.samples_per_s);
    json["scaling"] = NullOr(row.scaling);
    json["knee"] = row.is_knee;
    rows.push_back(std::move(json));
  }
  return rows;
}

// Replaces bytes that are not UTF-8, since a message of a failure may hold some.
std::string Dumped(const StudyJson& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, StudyJson::error_handler_t::replace);
}

}  // namespace

std::string BatchStudyText(const BatchStudy& study) {
  std::string text;
  if (study.target.has_value()) {
    const StudyTarget& target = *study.target;
    absl::StrAppend(&text, study.title, ": steps until ", target.metric,
                    output::IsLargerBetter(target.metric) ? " is at least " : " is at most ",
                    output::NumberText(target.value), "\n");
    if (!target.reason.empty()) absl::StrAppend(&text, target.reason, "\n");
  } else {
    absl::StrAppend(&text, study.title, ": no training has told an accuracy or a loss\n");
  }
  const std::string best =
      study.target.has_value() ? absl::StrCat("BEST ", study.target->metric) : "BEST";
  using Align = Table::Align;
  Table table({{"OPTIMIZER", Align::kLeft},
               {"BATCH", Align::kRight},
               {"LR", Align::kRight},
               {"JOB", Align::kRight},
               {best, Align::kRight},
               {"STEPS", Align::kRight},
               {"EPOCHS", Align::kRight},
               {"TIME", Align::kRight},
               {"SAMPLES/S", Align::kRight},
               {"OF PERFECT", Align::kRight},
               {"NOTE", Align::kLeft}});
  for (const StudyRow& row : study.rows) {
    table.AddRow({row.run.optimizer, absl::StrCat(row.run.batch), output::NumberText(row.run.lr),
                  output::ShortName(row.run.job), NumberOrNone(row.best),
                  row.steps.has_value() ? FormatCount(*row.steps) : "", EpochsText(row.epochs),
                  TimeToTargetText(row.seconds),
                  row.samples_per_s.has_value() ? output::RateText(*row.samples_per_s) : "",
                  ShareText(row.scaling), NoteOf(row, study.target)});
  }
  absl::StrAppend(&text, "\n", table.Render(), "\n");
  if (study.target.has_value()) {
    for (const std::string& name : study.Optimizers()) text += KneeText(study, name);
  }
  return text;
}

std::string BatchStudyJson(const BatchStudy& study, bool indented) {
  StudyJson json;
  json["title"] = study.title;
  json["metric"] = nullptr;
  json["target"] = nullptr;
  json["target_reason"] = "";
  if (study.target.has_value()) {
    json["metric"] = study.target->metric;
    json["target"] = study.target->value;
    json["target_reason"] = study.target->reason;
  }
  json["knee_scaling"] = kKneeScaling;
  json["rows"] = RowsJson(study);
  return absl::StrCat(Dumped(json, indented ? 2 : -1), "\n");
}

std::string BatchStudyRowsJson(const BatchStudy& study) {
  return Dumped(RowsJson(study), -1);
}

}  // namespace trainyard::commands
