// Most columns are a line of a table. Fields of specs are found by reflection.
#include "client/commands/list_columns.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/output/text.h"
#include "common/base/ids.h"
#include "common/base/strings.h"
#include "common/spec/paths.h"

namespace trainyard::commands {
namespace {

using output::Table;

// Longer texts are cut in a table on a terminal; -o wide shows all of them.
constexpr int kWhyWidth = 44;
constexpr int kDescriptionWidth = 40;

bool IsArray(const v1::Job& job) {
  return !job.array_states().empty();
}

std::string ProgressText(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.total_steps() <= 0) return "";
  return absl::StrCat(100 * progress.step() / progress.total_steps(), "%");
}

std::optional<double> Accuracy(const v1::Job& job) {
  const auto accuracy = job.final_metrics().find("test.accuracy");
  if (accuracy == job.final_metrics().end()) return std::nullopt;
  return accuracy->second;
}

std::string EtaText(const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_RUNNING || !job.progress().has_eta()) return "";
  return output::AgeText(output::ToDuration(job.progress().eta()));
}

// Returns how long the job ran, or has been running.
std::optional<absl::Duration> Took(const v1::Job& job, absl::Time now) {
  if (!job.has_start_time()) return std::nullopt;
  const absl::Time end = job.has_end_time() ? output::ToTime(job.end_time()) : now;
  return end - output::ToTime(job.start_time());
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

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Cuts a text to `width` columns if a person looks at the table, and no program.
std::string CutText(const Context& context, const std::string& text, int width) {
  const bool is_cut = context.terminal.out_is_terminal && context.options.format == Format::kTable;
  return is_cut ? output::Shortened(text, width) : text;
}

// Returns the reason for the state of a job that waits or has failed, or what is wrong with one
// that runs.
std::string WhyText(const v1::Job& job) {
  if (job.queue_reasons_size() > 0) return job.queue_reasons(0);
  if (job.state() == v1::JOB_STATE_FAILED || output::IsHeld(job)) {
    return FirstLine(job.failure().message());
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

// A row of an array stands for many jobs, which have no progress in common.
template <typename Text>
auto UnlessArray(Text text) {
  return [text](const v1::Job& job) { return IsArray(job) ? std::string() : text(job); };
}

std::string SecondsAge(std::optional<absl::Duration> duration) {
  return duration.has_value() ? output::AgeText(*duration) : "";
}

// Returns all columns that `ls` knows, in the order in which it shows them.
std::vector<std::pair<std::string, ListColumn>> KnownColumns(const Context& context,
                                                             absl::Time now) {
  const auto right = Table::Align::kRight;
  const auto age = [now](const v1::Job& job) { return now - output::ToTime(job.create_time()); };
  const auto seconds = [](auto duration) {
    return [duration](const v1::Job& job) -> std::optional<double> {
      return absl::ToDoubleSeconds(duration(job));
    };
  };
  return {
      {"job",
       {{"JOB", right},
        JobText,
        [](const v1::Job& job) { return static_cast<double>(ParseJobName(job.name())->value); }}},
      {"name",
       {{"NAME"},
        [](const v1::Job& job) {
          return IsArray(job) ? job.spec().name() : job.resolved_spec().name();
        }}},
      {"state", {{"STATE"}, [&context](const v1::Job& job) { return StateCell(context, job); }}},
      {"devices",
       {{"DEVICES", right},
        [](const v1::Job& job) { return output::DevicesText(job.resolved_spec()); },
        [](const v1::Job& job) { return job.resolved_spec().devices().count(); }}},
      {"done", {{"DONE", right}, UnlessArray(ProgressText)}},
      {"accuracy",
       {{"ACCURACY", right},
        UnlessArray([](const v1::Job& job) {
          const auto accuracy = Accuracy(job);
          return accuracy.has_value() ? output::PercentText(*accuracy) : std::string();
        }),
        Accuracy}},
      {"eta", {{"ETA", right}, UnlessArray(EtaText)}},
      {"took",
       {{"TOOK", right},
        UnlessArray([now](const v1::Job& job) { return SecondsAge(Took(job, now)); }),
        [now](const v1::Job& job) -> std::optional<double> {
          const auto took = Took(job, now);
          if (!took.has_value()) return std::nullopt;
          return absl::ToDoubleSeconds(*took);
        }}},
      {"age",
       {{"AGE", right},
        [age](const v1::Job& job) { return output::AgeText(age(job)); },
        seconds(age)}},
      {"user", {{"USER"}, [](const v1::Job& job) { return job.user(); }}},
      {"project", {{"PROJECT"}, [](const v1::Job& job) { return job.resolved_spec().project(); }}},
      {"attempt",
       {{"ATTEMPT"},
        [](const v1::Job& job) { return job.attempt() > 0 ? absl::StrCat(job.attempt()) : ""; },
        [](const v1::Job& job) { return job.attempt(); }}},
      {"workers", {{"WORKERS"}, WorkersText}},
      {"created",
       {{"CREATED"},
        [](const v1::Job& job) { return output::TimeText(job.create_time()); },
        [age](const v1::Job& job) { return -absl::ToDoubleSeconds(age(job)); }}},
      {"size",
       {{"SIZE", right},
        [](const v1::Job& job) {
          const int64_t bytes = output::TotalBytes(job.stored());
          return bytes == 0 ? std::string() : FormatBytes(bytes);
        },
        [](const v1::Job& job) { return static_cast<double>(output::TotalBytes(job.stored())); }}},
      {"tags",
       {{"TAGS"},
        [](const v1::Job& job) {
          std::vector<std::string> tags(job.resolved_spec().tags().begin(),
                                        job.resolved_spec().tags().end());
          tags.insert(tags.end(), job.added_tags().begin(), job.added_tags().end());
          return absl::StrJoin(tags, ",");
        }}},
      {"note",
       {{"NOTE"},
        [&context](const v1::Job& job) {
          return CutText(context, FirstLine(job.note()), kDescriptionWidth);
        }}},
      {"description",
       {{"DESCRIPTION"},
        [&context](const v1::Job& job) {
          return CutText(context, FirstLine(job.resolved_spec().description()), kDescriptionWidth);
        }}},
      {"why",
       {{"WHY"},
        [&context](const v1::Job& job) { return CutText(context, WhyText(job), kWhyWidth); }}},
  };
}

// Returns a column of a field of the spec. Of several paths, such as those of the rates of all
// optimizers, a job shows the first that it has.
ListColumn SpecColumn(const std::string& word, const std::vector<std::string>& paths) {
  const auto text = [paths](const v1::Job& job) {
    for (const std::string& path : paths) {
      std::string value = spec::ValueAt(job.resolved_spec(), path);
      if (!value.empty()) return value;
    }
    return std::string();
  };
  const auto number = [text](const v1::Job& job) -> std::optional<double> {
    double value = 0;
    if (!absl::SimpleAtod(text(job), &value)) return std::nullopt;
    return value;
  };
  return {{absl::AsciiStrToUpper(word), Table::Align::kRight}, text, number};
}

// A job shows the last values of metrics whose names begin with `train.` and `test.`. Paths of
// specs begin with `train.` too, and may have a mistake.
bool IsMetricName(const std::string& name) {
  return absl::StartsWith(name, "test.") ||
         (absl::StartsWith(name, "train.") && NearestWord(name, spec::SpecPaths()).empty());
}

ListColumn MetricColumn(const std::string& name) {
  const auto number = [name](const v1::Job& job) -> std::optional<double> {
    const auto found = job.final_metrics().find(name);
    if (found == job.final_metrics().end()) return std::nullopt;
    return found->second;
  };
  const auto text = [number](const v1::Job& job) {
    const auto value = number(job);
    return value.has_value() ? output::NumberText(*value) : std::string();
  };
  return {{absl::AsciiStrToUpper(name), Table::Align::kRight}, UnlessArray(text), number};
}

}  // namespace

std::vector<std::string> UsualColumns(bool is_wide) {
  std::vector<std::string> names = {"job",      "name", "state", "devices", "done",
                                    "accuracy", "eta",  "took",  "age"};
  if (is_wide) {
    names.insert(names.end(), {"user", "project", "attempt", "workers", "created", "tags",
                               "description", "note"});
  }
  names.emplace_back("why");
  return names;
}

bool IsColumnOfList(const Context& context, const std::string& name) {
  const auto columns = KnownColumns(context, absl::UnixEpoch());
  return name == "id" || std::any_of(columns.begin(), columns.end(),
                                     [&name](const auto& column) { return column.first == name; });
}

absl::StatusOr<ListColumn> ColumnOf(const Context& context, const std::string& name,
                                    absl::Time now) {
  std::vector<std::string> names;
  for (auto& [known, column] : KnownColumns(context, now)) {
    if (known == (name == "id" ? "job" : name)) return std::move(column);
    names.push_back(known);
  }
  const std::vector<std::string> paths = spec::PathsOf(name);
  if (!paths.empty()) return SpecColumn(name, paths);
  if (IsMetricName(name)) return MetricColumn(name);
  std::vector<std::string> all = spec::SpecPaths();
  all.insert(all.end(), names.begin(), names.end());
  const std::string nearest = NearestWord(name, all);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no column '", name, "'",
      nearest.empty() ? absl::StrCat("; expected ", absl::StrJoin(names, ", "),
                                     ", or a field of the spec such as optimizer.sgd.lr")
                      : absl::StrCat("; did you mean '", nearest, "'?")));
}

void SortBy(const ListColumn& column, bool reverse, std::vector<v1::Job>& jobs) {
  const auto has_value = [&](const v1::Job& job) {
    return column.number ? column.number(job).has_value() : !column.text(job).empty();
  };
  const auto is_less = [&](const v1::Job& a, const v1::Job& b) {
    return column.number ? *column.number(a) < *column.number(b) : column.text(a) < column.text(b);
  };
  const auto end = std::stable_partition(jobs.begin(), jobs.end(), has_value);
  std::stable_sort(jobs.begin(), end, [&](const v1::Job& a, const v1::Job& b) {
    return reverse ? is_less(b, a) : is_less(a, b);
  });
}

}  // namespace trainyard::commands
