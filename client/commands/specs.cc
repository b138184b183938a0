// specs keeps specs in the server's catalogue, from which they are run again by their names.
#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/code_sender.h"
#include "client/commands/diff.h"
#include "client/commands/load_spec.h"
#include "client/commands/saved_specs.h"
#include "client/commands/selector.h"
#include "client/commands/spec_changes.h"
#include "client/commands/verbs.h"
#include "client/output/proto_text.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

struct SaveOptions {
  std::string source;
  std::string name;
  std::string note;
  std::vector<std::string> tags;
  SpecFlags spec;
  bool dry_run = false;
};

struct ListSavedOptions {
  std::string text;
  std::vector<std::string> tags;
};

struct ShowSavedOptions {
  std::string name;
  bool resolved = false;
};

struct DiffSavedOptions {
  std::vector<std::string> words;
};

struct RemoveSavedOptions {
  std::vector<std::string> names;
  bool yes = false;
};

constexpr char kSavedNameHelp[] = "NAME for the newest version, or NAME@VERSION";

absl::StatusOr<SpecId> SavedIdOf(const std::string& word) {
  if (const auto id = ParseSavedName(word); id.has_value()) return *id;
  return absl::InvalidArgumentError(
      absl::StrCat("'", word, "' is no name of a saved spec; expected NAME or NAME@VERSION"));
}

// Fills in the spec of a file. Returns false if it has mistakes, which were told.
absl::StatusOr<bool> TakeFile(const Context& context, link::ServerLink& link,
                              const SaveOptions& options, v1::SaveSpecRequest& request) {
  TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSpec(context, options.source));
  TY_RETURN_IF_ERROR(ApplyChanges(options.spec, file).status());
  if (!file.mistakes.empty()) {
    (void)TellMistakes(context, file, "nothing was saved");
    return false;
  }
  v1::SubmitOptions sent;
  TY_RETURN_IF_ERROR(
      CodeSender(context, options.dry_run ? nullptr : &link).Send(file, file.spec, sent));
  *request.mutable_spec() = file.spec;
  *request.mutable_code_origin() = sent.code_origin();
  return true;
}

Result SaveSpec(const Context& context, const SaveOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::SaveSpecRequest request;
  request.set_name(options.name);
  request.set_note(options.note);
  request.set_validate_only(options.dry_run);
  for (const std::string& tag : options.tags) request.add_tags(tag);
  if (IsSpecFile(options.source)) {
    TY_ASSIGN_OR_RETURN(const bool is_good, TakeFile(context, *link, options, request));
    if (!is_good) return link::kUsage;
  } else {
    if (!options.spec.set.empty()) {
      return absl::InvalidArgumentError(
          "--set belongs to a file; a job is saved as it ran. Run a clone with the change, and "
          "save that");
    }
    TY_ASSIGN_OR_RETURN(*request.mutable_job(), ResolveOne(*link, options.source));
  }
  TY_ASSIGN_OR_RETURN(const v1::SavedSpec saved,
                      link->Call(&v1::SpecService::Stub::SaveSpec, request));
  const std::string name = SavedName(saved.name());
  if (!PrintOne(context, saved, name)) context.out << name << "\n" << std::flush;
  context.Say(options.dry_run
                  ? absl::StrCat("nothing was saved; it would be the next version of ", name)
                  : absl::StrCat("saved; trainyard run ", name, " runs it again"));
  return link::kOk;
}

std::string MetricText(const v1::SavedSpec& saved) {
  const auto& metrics = saved.result().final_metrics();
  for (const char* name : {"test.accuracy", "test.loss", "train.loss"}) {
    const auto found = metrics.find(name);
    if (found != metrics.end()) return absl::StrCat(name, " ", output::NumberText(found->second));
  }
  return "";
}

void PrintSaved(const Context& context, const std::vector<v1::SavedSpec>& specs) {
  const absl::Time now = context.clock.Now();
  const bool is_wide = context.options.format == Format::kWide;
  std::vector<output::Table::Column> columns = {{"NAME"},  {"MODEL"}, {"DATA"}, {"RESULT"},
                                                {"SAVED"}, {"BY"},    {"NOTE"}};
  if (is_wide) {
    columns.push_back({"JOB"});
    columns.push_back({"RAN ON"});
    columns.push_back({"TAGS"});
  }
  output::Table table(columns);
  for (const v1::SavedSpec& saved : specs) {
    const std::string note = saved.note().substr(0, saved.note().find('\n'));
    std::vector<std::string> row = {SavedName(saved.name()),
                                    saved.model(),
                                    saved.dataset(),
                                    MetricText(saved),
                                    output::AgeText(now - output::ToTime(saved.create_time())),
                                    saved.user(),
                                    is_wide ? note : output::Shortened(note, 48)};
    if (is_wide) {
      row.push_back(saved.result().job());
      row.push_back(saved.result().devices());
      row.push_back(absl::StrJoin(saved.tags(), ","));
    }
    table.AddRow(std::move(row));
  }
  context.out << table.Render();
}

absl::StatusOr<std::vector<v1::SavedSpec>> FetchList(link::ServerLink& link,
                                                     v1::ListSavedSpecsRequest request) {
  request.set_page_size(1000);
  std::vector<v1::SavedSpec> specs;
  while (true) {
    TY_ASSIGN_OR_RETURN(const v1::ListSavedSpecsResponse page,
                        link.Call(&v1::SpecService::Stub::ListSavedSpecs, request));
    specs.insert(specs.end(), page.specs().begin(), page.specs().end());
    if (page.next_page_token().empty()) return specs;
    request.set_page_token(page.next_page_token());
  }
}

Result PrintListOf(const Context& context, const v1::ListSavedSpecsRequest& request) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<v1::SavedSpec> specs, FetchList(*link, request));
  std::vector<std::string> names;
  for (const v1::SavedSpec& saved : specs) names.push_back(SavedName(saved.name()));
  if (PrintMessages(context, specs, names)) return link::kOk;
  if (specs.empty()) {
    context.Say(request.text().empty() && request.tags().empty()
                    ? "no saved specs; `trainyard specs save JOB NAME` makes one"
                    : "no saved spec fits; `trainyard specs ls` lists all");
    return link::kOk;
  }
  PrintSaved(context, specs);
  return link::kOk;
}

Result ListSaved(const Context& context, const ListSavedOptions& options) {
  v1::ListSavedSpecsRequest request;
  request.set_text(options.text);
  for (const std::string& tag : options.tags) request.add_tags(tag);
  return PrintListOf(context, request);
}

Result History(const Context& context, const ShowSavedOptions& options) {
  TY_ASSIGN_OR_RETURN(const SpecId id, SavedIdOf(options.name));
  v1::ListSavedSpecsRequest request;
  request.set_parent(SpecName({id.name, 0}));
  return PrintListOf(context, request);
}

// Returns what is known of the saved spec, as comments above its YAML.
std::string HeadText(const v1::SavedSpec& saved) {
  std::string head =
      absl::StrCat("# ", SavedName(saved.name()), ", saved ", output::TimeText(saved.create_time()),
                   " by ", saved.user(), " with Trainyard ", saved.server_version(), "\n");
  for (const absl::string_view line : absl::StrSplit(saved.note(), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&head, "# ", line, "\n");
  }
  if (!saved.tags().empty()) {
    absl::StrAppend(&head, "# tags: ", absl::StrJoin(saved.tags(), ", "), "\n");
  }
  if (!saved.has_result()) return head;
  const v1::SavedResult& result = saved.result();
  absl::StrAppend(&head, "# of ", result.job(), ", which was ", output::StateText(result.state()),
                  " at step ", result.step(),
                  result.devices().empty() ? "" : absl::StrCat(" on ", result.devices()), "\n");
  std::vector<std::string> metrics;
  for (const auto& [name, value] : result.final_metrics()) {
    metrics.push_back(absl::StrCat(name, " ", output::NumberText(value)));
  }
  std::sort(metrics.begin(), metrics.end());
  if (!metrics.empty()) absl::StrAppend(&head, "# ", absl::StrJoin(metrics, ", "), "\n");
  return head;
}

Result ShowSaved(const Context& context, const ShowSavedOptions& options) {
  TY_ASSIGN_OR_RETURN(const SpecId id, SavedIdOf(options.name));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::SavedSpec saved, FetchSavedSpec(*link, id));
  if (PrintOne(context, saved, SavedName(saved.name()))) return link::kOk;
  context.out << HeadText(saved)
              << output::SpecYaml(options.resolved ? saved.resolved_spec() : saved.spec())
              << std::flush;
  return link::kOk;
}

// One side of a comparison: a saved spec, a file or a job.
struct Side {
  std::string title;
  v1::JobSpec resolved;
};

absl::StatusOr<Side> SideOf(const Context& context, link::ServerLink& link,
                            const std::string& word) {
  if (IsSpecFile(word)) {
    TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSpec(context, word));
    if (!file.mistakes.empty()) {
      (void)TellMistakes(context, file, "nothing was compared");
      return absl::InvalidArgumentError(absl::StrCat(word, " is no valid spec"));
    }
    TY_ASSIGN_OR_RETURN(v1::JobSpec resolved, spec::ResolveSpec(file.spec));
    return Side{word, std::move(resolved)};
  }
  if (const auto id = ParseSavedName(word); id.has_value()) {
    TY_ASSIGN_OR_RETURN(const v1::SavedSpec saved, FetchSavedSpec(link, *id));
    return Side{SavedName(saved.name()), saved.resolved_spec()};
  }
  v1::GetJobRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveOne(link, word));
  TY_ASSIGN_OR_RETURN(const v1::Job job, link.Call(&v1::JobService::Stub::GetJob, request));
  return Side{job.name(), job.resolved_spec()};
}

Result DiffSaved(const Context& context, const DiffSavedOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const Side left, SideOf(context, *link, options.words[0]));
  TY_ASSIGN_OR_RETURN(const Side right, SideOf(context, *link, options.words[1]));
  google::protobuf::RepeatedPtrField<v1::SpecDifference> differences;
  std::vector<std::string> paths;
  for (const spec::FieldDifference& difference : spec::DiffSpecs(left.resolved, right.resolved)) {
    v1::SpecDifference& added = *differences.Add();
    added.set_path(difference.path);
    added.set_left_json(difference.left_json);
    added.set_right_json(difference.right_json);
    paths.push_back(difference.path);
  }
  if (PrintMessages(context, differences, paths)) return link::kOk;
  if (differences.empty()) {
    context.Say("the specs are equal");
  } else {
    context.out << DifferencesText(differences, left.title, right.title);
  }
  return link::kOk;
}

Result RemoveSaved(const Context& context, const RemoveSavedOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& word : options.names) {
    TY_ASSIGN_OR_RETURN(const SpecId id, SavedIdOf(word));
    TY_ASSIGN_OR_RETURN(const v1::SavedSpec saved, FetchSavedSpec(*link, id));
    const std::string what =
        id.version == 0 ? absl::StrCat(id.name, " with ",
                                       Counted(static_cast<size_t>(saved.versions()), "version"))
                        : word;
    if (!options.yes && context.in_is_terminal &&
        !Confirm(context, absl::StrCat("delete ", what, " for good?"), /*yes_by_default=*/false)) {
      context.Say("nothing was deleted");
      continue;
    }
    v1::DeleteSavedSpecRequest request;
    request.set_name(SpecName(id));
    TY_RETURN_IF_ERROR(link->Call(&v1::SpecService::Stub::DeleteSavedSpec, request).status());
    context.Say(absl::StrCat("deleted ", what));
  }
  return link::kOk;
}

}  // namespace

void AddSpecs(VerbTable& verbs) {
  verbs.Group("specs", "Saved specs, from which jobs are run again by name");
  verbs.Add<SaveOptions>(
      "specs save", "Save the spec of a job, or of a file, under a name",
      "last resnet-baseline --note 'before the new data'",
      [](client::Flags& flags, SaveOptions& options) {
        flags.Word("SOURCE", options.source, "A job (12, last, its name) or a spec file")
            .Required();
        flags
            .Word("NAME", options.name,
                  "Its name; if there are versions of it, this becomes the next one")
            .Required();
        flags.Value("--note", options.note, "What is worth knowing about it");
        flags.Repeated("--tag", options.tags, "Tag; may be repeated");
        flags.Repeated("--set", options.spec.set,
                       "Change of the file's spec, PATH=VALUE; may be repeated");
        flags.Switch("--dry-run", options.dry_run, "Check it, and save nothing");
      },
      SaveSpec);
  verbs.Add<ListSavedOptions>(
      "specs ls", "List the saved specs, the newest version of each", "resnet --tag paper",
      [](client::Flags& flags, ListSavedOptions& options) {
        flags.Word("TEXT", options.text,
                   "Only those that have this text in their names, notes, "
                   "models, data or tags");
        flags.Repeated("--tag", options.tags, "Only those with this tag; may be repeated");
      },
      ListSaved);
  verbs.Add<ShowSavedOptions>(
      "specs show", "Print a saved spec as a file that can be submitted", "resnet-baseline@2",
      [](client::Flags& flags, ShowSavedOptions& options) {
        flags.Word("NAME", options.name, kSavedNameHelp).Required();
        flags.Switch("--resolved", options.resolved, "With all defaults, as it is run");
      },
      ShowSaved);
  verbs.Add<DiffSavedOptions>(
      "specs diff", "Show how two specs differ: saved ones, files or jobs",
      "resnet-baseline@1 resnet-baseline@2",
      [](client::Flags& flags, DiffSavedOptions& options) {
        flags.Words("SPEC", options.words, "NAME, NAME@VERSION, a spec file, or a job's number")
            .Required()
            .Count(2, 2);
      },
      DiffSaved);
  verbs.Add<ShowSavedOptions>(
      "specs history", "List all versions of a saved spec", "resnet-baseline",
      [](client::Flags& flags, ShowSavedOptions& options) {
        flags.Word("NAME", options.name, "Its name").Required();
      },
      History);
  verbs.Add<RemoveSavedOptions>(
      "specs rm", "Delete a version, or a name with all its versions", "resnet-baseline@1",
      [](client::Flags& flags, RemoveSavedOptions& options) {
        flags.Words("NAME", options.names, "NAME for all versions, or NAME@VERSION").Required();
        flags.Switch("-y,--yes", options.yes, "Do not ask");
      },
      RemoveSaved);
}

}  // namespace trainyard::commands
