// data shows, verifies and downloads data sets. Other programs do the work: the trainer knows the
// formats, and trainyard-fetch downloads over HTTP.
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/commands/data_sources.h"
#include "client/commands/fetch_progress.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "client/fetch/download.h"
#include "client/output/csv.h"
#include "client/output/proto_text.h"
#include "client/output/table.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using nlohmann::ordered_json;
using output::Table;

struct DataOptions {
  std::string dataset_dir;
};

struct FetchOptions {
  std::vector<std::string> datasets;
  std::string mirror;
  std::string dataset_dir;
};

// Each of these may be slow: a listing opens every archive, a verification reads every image, and a
// download depends on the network.
constexpr absl::Duration kListTimeout = absl::Minutes(10);
constexpr absl::Duration kVerifyTimeout = absl::Hours(48);
constexpr absl::Duration kFetchTimeout = absl::Hours(24);

// Asks the trainer which data sets are in the folder.
absl::StatusOr<ordered_json> AskTrainer(const Context& context, const std::string& what,
                                        const std::string& dataset_dir, absl::Duration timeout) {
  TY_ASSIGN_OR_RETURN(const std::string trainer,
                      FindProgram(context.surroundings.binary_dir, "trainyard-trainer"));
  TY_ASSIGN_OR_RETURN(
      const daemons::ChildResult result,
      daemons::RunChild({trainer, "--data", what, "--dataset_dir", dataset_dir}, "", timeout));
  if (result.exit_code != 0) {
    return absl::NotFoundError(std::string(absl::StripAsciiWhitespace(result.err)));
  }
  ordered_json report = ordered_json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("splits") || !report["splits"].is_array()) {
    return absl::InternalError(
        absl::StrCat("'", trainer, " --data ", what, "' gave no list of data sets"));
  }
  return report;
}

// Returns the name of a data set, such as "images:pets" or "mnist".
std::string NameOf(const ordered_json& split) {
  const std::string path = split.value("path", "");
  const std::string dataset = split.value("dataset", "");
  return path.empty() ? dataset : absl::StrCat(dataset, ":", path);
}

std::vector<std::string> ErrorsOf(const ordered_json& split) {
  return split.value("errors", std::vector<std::string>());
}

bool PrintAsAsked(const Context& context, const ordered_json& report) {
  switch (context.options.format) {
    case Format::kJson:
      context.out << report["splits"].dump(2) << "\n";
      return true;
    case Format::kJsonLines:
      for (const ordered_json& split : report["splits"]) context.out << split.dump() << "\n";
      return true;
    case Format::kYaml:
      context.out << output::JsonToYaml(report["splits"].dump());
      return true;
    case Format::kCsv:
      context.out << output::JsonToCsv(report["splits"].dump());
      return true;
    case Format::kName: {
      std::set<std::string> names;
      for (const ordered_json& split : report["splits"]) names.insert(NameOf(split));
      for (const std::string& name : names) context.out << name << "\n";
      return true;
    }
    default:
      return false;
  }
}

Table TableOf(const ordered_json& report, bool has_workers) {
  std::vector<Table::Column> columns = {
      {"DATASET"}, {"SPLIT"}, {"SAMPLES", Table::Align::kRight}, {"CLASSES", Table::Align::kRight},
      {"SHAPE"},   {"DIGEST"}};
  if (has_workers) columns.insert(columns.begin(), Table::Column{"WORKER"});
  Table table(std::move(columns));
  for (const ordered_json& split : report["splits"]) {
    const auto count = [&split](const char* field) {
      return split.contains(field) ? FormatCount(split[field].get<int64_t>()) : std::string();
    };
    std::vector<std::string> row = {
        NameOf(split),    split.value("split", ""), count("samples"),
        count("classes"), split.value("shape", ""), split.value("digest", "")};
    if (has_workers) row.insert(row.begin(), split.value("worker", ""));
    table.AddRow(std::move(row));
  }
  return table;
}

void PrintTable(const Context& context, const ordered_json& report,
                const std::string& dataset_dir) {
  if (report["splits"].empty()) {
    context.Say(absl::StrCat("no data sets in '", dataset_dir,
                             "'; `trainyard data fetch` gets public ones"));
    return;
  }
  context.out << TableOf(report, /*has_workers=*/false).Render();
}

// Prints the errors of all splits, and returns true if there are any.
bool TellErrors(const Context& context, const ordered_json& report) {
  bool has_errors = false;
  for (const ordered_json& split : report["splits"]) {
    const std::vector<std::string> errors = ErrorsOf(split);
    if (errors.empty()) continue;
    has_errors = true;
    const int64_t corrupt = split.value("corrupt", int64_t{0});
    const std::string worker = split.value("worker", "");
    context.err << (worker.empty() ? "" : absl::StrCat("worker ", worker, ": ")) << NameOf(split)
                << " " << split.value("split", "") << ": "
                << (corrupt > 0 ? Counted(static_cast<size_t>(corrupt), "corrupt sample")
                                : std::string("cannot be opened"))
                << "\n";
    for (const std::string& error : errors) context.err << "  " << error << "\n";
    if (corrupt > static_cast<int64_t>(errors.size())) {
      context.err << "  and " << corrupt - static_cast<int64_t>(errors.size()) << " more\n";
    }
  }
  return has_errors;
}

Result ReportOf(const Context& context, const std::string& what, const std::string& dataset_dir,
                absl::Duration timeout) {
  TY_ASSIGN_OR_RETURN(const ordered_json report, AskTrainer(context, what, dataset_dir, timeout));
  if (!PrintAsAsked(context, report)) PrintTable(context, report, dataset_dir);
  return TellErrors(context, report) ? link::kFailed : link::kOk;
}

absl::Status Fetch(const Context& context, const FetchOptions& options, const std::string& fetcher,
                   const DataSource& source) {
  const std::string folder = JoinPath(options.dataset_dir, source.dataset);
  TY_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const SourceFile& file : source.files) {
    const std::string path = JoinPath(folder, file.name);
    FetchProgress progress(context, file.name);
    const auto result = daemons::RunChild(
        {fetcher, "--url", "-", "--to", path, "--md5", std::string(file.md5), "--progress"},
        SourceUrl(source, file, options.mirror), kFetchTimeout,
        [&progress](absl::string_view text) { progress.OnOutput(text); });
    progress.Clear();
    TY_RETURN_IF_ERROR(result.status());
    const std::string error(absl::StripAsciiWhitespace(result->err));
    if (result->exit_code == fetch::kExitUnavailable) {
      return MakeError(absl::StatusCode::kUnavailable, "SOURCE_UNREACHABLE", error);
    }
    if (result->exit_code != 0) return absl::DataLossError(error);
    context.Say(absl::StrCat(path, " ", progress.verdict()));
  }
  return absl::OkStatus();
}

// Returns the data sets that the workers of the pool have told, each with the name of its worker.
absl::StatusOr<ordered_json> AskPool(link::ServerLink& link, std::vector<std::string>& silent) {
  TY_ASSIGN_OR_RETURN(const v1::ListWorkersResponse answer,
                      link.Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest()));
  ordered_json splits = ordered_json::array();
  for (const v1::Worker& worker : answer.workers()) {
    const std::string name(absl::StripPrefix(worker.name(), "workers/"));
    if (!worker.has_datasets()) silent.push_back(name);
    for (const v1::DatasetSplit& split : worker.datasets().splits()) {
      ordered_json item = {{"worker", name},
                           {"dataset", split.dataset()},
                           {"path", split.path()},
                           {"split", split.split()}};
      if (split.error().empty()) {
        item.update({{"samples", split.samples()},
                     {"classes", split.classes()},
                     {"shape", split.shape()},
                     {"digest", split.digest()}});
      }
      item["errors"] = ordered_json::array();
      if (!split.error().empty()) item["errors"].push_back(split.error());
      splits.push_back(std::move(item));
    }
  }
  return ordered_json{{"splits", std::move(splits)}};
}

Result ListPoolData(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::vector<std::string> silent;
  TY_ASSIGN_OR_RETURN(const ordered_json report, AskPool(*link, silent));
  if (!PrintAsAsked(context, report)) {
    if (report["splits"].empty()) {
      context.Say("the workers have told no data sets; generated ones (glyphs) are everywhere");
    } else {
      context.out << TableOf(report, /*has_workers=*/true).Render();
    }
  }
  for (const std::string& worker : silent) {
    context.Say(absl::StrCat("worker ", worker, " has not told its data sets (yet)"));
  }
  return TellErrors(context, report) ? link::kFailed : link::kOk;
}

Result ListData(const Context& context, const DataOptions& options) {
  if (options.dataset_dir.empty()) return ListPoolData(context);
  return ReportOf(context, "ls", options.dataset_dir, kListTimeout);
}

Result VerifyData(const Context& context, const DataOptions& options) {
  return ReportOf(context, "verify", options.dataset_dir, kVerifyTimeout);
}

Result FetchData(const Context& context, const FetchOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::string fetcher,
                      FindProgram(context.surroundings.binary_dir, "trainyard-fetch"));
  std::vector<const DataSource*> sources;
  for (const std::string& dataset : options.datasets) {
    const DataSource* source = FindDataSource(dataset);
    if (source == nullptr) {
      return MakeError(absl::StatusCode::kNotFound, "DATASET_NOT_FOUND",
                       absl::StrCat("data set '", dataset,
                                    "' cannot be fetched; those that can are ", DataSourceNames()));
    }
    sources.push_back(source);
  }
  for (const DataSource* source : sources) {
    TY_RETURN_IF_ERROR(Fetch(context, options, fetcher, *source));
  }
  return link::kOk;
}

}  // namespace

void AddData(VerbTable& verbs) {
  const auto declare = [](client::Flags& flags, auto& options) {
    flags.Value("--dataset-dir", options.dataset_dir, "Folder of the data sets").Required();
  };
  verbs.Group("data", "Data sets of the pool, or in a folder of this machine");
  verbs.Add<DataOptions>(
      "data ls", "List the data sets of the workers, or of a folder", "--dataset-dir /srv/data",
      [](client::Flags& flags, DataOptions& options) {
        flags.Value("--dataset-dir", options.dataset_dir,
                    "Folder of this machine; without it, the workers' folders");
      },
      ListData);
  verbs.Add<DataOptions>("data verify",
                         "Read all samples, and list the corrupt ones and missing parts",
                         "--dataset-dir /srv/data", declare, VerifyData);
  verbs.Add<FetchOptions>(
      "data fetch", "Download public data sets, or resume their download",
      "cifar10 fashion-mnist --dataset-dir /srv/data",
      [declare](client::Flags& flags, FetchOptions& options) {
        flags.Words("DATASET", options.datasets, DataSourceNames()).Required();
        flags.Value("--mirror", options.mirror,
                    "URL or folder that has the files, instead of their publisher's");
        declare(flags, options);
      },
      FetchData);
}

}  // namespace trainyard::commands
