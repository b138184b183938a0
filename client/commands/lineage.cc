// lineage shows from which jobs a job descends, and which descend from it.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/lineage_tree.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct LineageOptions {
  std::string job;
  int limit = 0;
  std::string output_file;
};

// Each job is compared with its parent by a call of its own, so a large family is shown without.
constexpr int kDiffedJobsMax = 60;
constexpr size_t kChangesShown = 3;

std::string PlainValue(const std::string& json) {
  if (json.empty()) return "unset";
  const bool is_text = json.size() >= 2 && json.front() == '"';
  return is_text ? json.substr(1, json.size() - 2) : json;
}

// Returns "lr 0.1 -> 0.02, epochs 2 -> 4", or an empty text if the two have the same spec.
std::string ChangesText(const v1::DiffJobsResponse& response) {
  std::vector<std::string> changes;
  size_t left_out = 0;
  for (const v1::SpecDifference& one : response.differences()) {
    // The names and the digests say nothing that the tree does not say.
    if (one.path() == "name" || one.path() == "from_checkpoint" || one.path() == "data.digest" ||
        one.path() == "init.digest") {
      continue;
    }
    if (changes.size() == kChangesShown) {
      ++left_out;
      continue;
    }
    const size_t dot = one.path().rfind('.');
    const std::string word = dot == std::string::npos ? one.path() : one.path().substr(dot + 1);
    changes.push_back(word == "code" ? "other code"
                                     : absl::StrCat(word, " ", PlainValue(one.left_json()), " -> ",
                                                    PlainValue(one.right_json())));
  }
  if (left_out > 0) changes.push_back(absl::StrCat(left_out, " more"));
  return absl::StrJoin(changes, ", ");
}

LineageChanges FetchChanges(link::ServerLink& link, const v1::Lineage& lineage) {
  LineageChanges changes;
  if (lineage.nodes_size() > kDiffedJobsMax) return changes;
  for (const v1::LineageNode& node : lineage.nodes()) {
    const v1::LineageLink* parent = PlacingLink(node, lineage);
    if (parent == nullptr) continue;
    v1::DiffJobsRequest request;
    request.set_left(parent->parent());
    request.set_right(node.name());
    const auto response = link.Call(&v1::JobService::Stub::DiffJobs, request);
    // The spec of a job that was deleted may be gone.
    if (response.ok()) changes[node.name()] = ChangesText(*response);
  }
  return changes;
}

Result ShowLineage(const Context& context, const LineageOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::GetLineageRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveOne(*link, options.job));
  request.set_max_jobs(options.limit);
  TY_ASSIGN_OR_RETURN(const v1::Lineage lineage,
                      link->Call(&v1::JobService::Stub::GetLineage, request));
  if (lineage.is_cut()) {
    context.Say(absl::StrCat("only the ", lineage.nodes_size(),
                             " nearest jobs are shown; --limit N shows more"));
  }
  if (!options.output_file.empty()) {
    const std::string svg = LineageSvg(lineage, request.name(), FetchChanges(*link, lineage));
    if (options.output_file == "-") {
      context.out << svg << std::flush;
    } else {
      TY_RETURN_IF_ERROR(WriteFileAtomically(options.output_file, svg, 0644));
      context.Say(absl::StrCat("the lineage of ", request.name(), " is in ", options.output_file));
    }
    return link::kOk;
  }
  if (PrintOne(context, lineage, request.name())) return link::kOk;
  context.out << LineageTree(lineage, request.name(), FetchChanges(*link, lineage),
                             context.terminal)
              << std::flush;
  return link::kOk;
}

}  // namespace

void AddLineage(VerbTable& verbs) {
  verbs.Add<LineageOptions>(
      "lineage", "Show from which jobs a job descends, and which descend from it",
      "12\n  trainyard lineage 12 -O family.svg",
      [](client::Flags& flags, LineageOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Value("--limit", options.limit, "At most this many jobs, the nearest ones (200)")
            .Range(1, 1000);
        flags.Value("-O,--output-file", options.output_file,
                    "Write a picture to this file, as SVG; - for standard output");
      },
      ShowLineage);
}

}  // namespace trainyard::commands
