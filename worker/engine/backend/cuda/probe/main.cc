// trainyard-probe shows which graphs cuDNN has plans for, on this GPU or on one that is described.
//   trainyard-probe                           a table, with times
//   trainyard-probe --describe h200.json      writes the description of this GPU
//   trainyard-probe --device-json h200.json   the table of that GPU, without any
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "common/base/run_main.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/candidates.h"
#include "worker/engine/backend/cuda/dnn/target.h"
#include "worker/engine/backend/cuda/probe/patterns.h"

namespace trainyard::engine::cuda::probe {
namespace {

struct Options {
  std::string describe;
  std::string device_json;
  int candidates = 8;
  int64_t workspace_mib = 256;
};

struct Precision {
  const char* name;
  Type type;
  bool tf32;
};
constexpr Precision kPrecisions[] = {{"bf16", Type::kBf16, false},
                                     {"f16", Type::kF16, false},
                                     {"tf32", Type::kF32, true},
                                     {"f32", Type::kF32, false}};

// Writes one line of the table.
std::string Row(dnn::PlanBuilder& builder, const Pattern& pattern, const Precision& precision,
                const Options& options) {
  const std::string head = absl::StrCat("| ", pattern.name, " | ", precision.name, " | ");
  const auto refused = [&](const absl::Status& status) {
    return absl::StrCat(head, "no | | | | ",
                        absl::StrReplaceAll(status.message(), {{"|", "/"}, {"\n", " "}}), " |");
  };
  const dnn::Target& target = builder.target();
  absl::StatusOr<dnn::Graph> graph = pattern.build(precision.type, precision.tf32, target.handle);
  if (!graph.ok()) {
    return refused(graph.status());
  }
  dnn::PlannerOptions planner;
  planner.workspace_bytes_max = options.workspace_mib << 20;
  absl::StatusOr<std::vector<dnn::Candidate>> candidates =
      dnn::FindCandidates(builder, *graph,
                          {.planner = planner,
                           .precision = {precision.type == Type::kF32, precision.tf32},
                           .max = options.candidates});
  if (!candidates.ok()) {
    return refused(candidates.status());
  }
  std::string time;
  if (target.has_device()) {
    const absl::Status sorted = dnn::SortBySpeed(builder, *graph, *candidates);
    if (!sorted.ok()) {
      return refused(sorted);
    }
    time = absl::StrCat(candidates->front().microseconds);
  }
  const dnn::Candidate& best = candidates->front();
  return absl::StrCat(head, "yes | ", candidates->size(), " | ",
                      graph->WorkspaceBytes(best.plan.workspace_bytes), " | ", time, " | ",
                      best.name, " |");
}

absl::Status PrintTable(std::unique_ptr<dnn::OpenTarget> target, const Options& options) {
  dnn::PlanBuilder builder(std::move(target), dnn::PlanBuilder::UsualThreads());
  std::printf("cuDNN %zu, %s, at most %lld MiB of workspace, at most %d candidates\n\n",
              cudnnGetVersion(), builder.target().name.c_str(),
              static_cast<long long>(options.workspace_mib), options.candidates);
  std::printf("| graph | type | plan | candidates | workspace bytes | us | engine or reason |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const auto& patterns : {ConvPatterns(), FusedConvPatterns(), NormPatterns(),
                               ResamplePatterns(), AttentionPatterns()}) {
    for (const Pattern& pattern : patterns) {
      for (const Precision& precision : kPrecisions) {
        std::printf("%s\n", Row(builder, pattern, precision, options).c_str());
        std::fflush(stdout);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  std::unique_ptr<dnn::OpenTarget> target;
  if (options.device_json.empty()) {
    TY_ASSIGN_OR_RETURN(target, dnn::OpenTarget::ForDevice());
  } else {
    TY_ASSIGN_OR_RETURN(const std::string json, ReadFile(options.device_json));
    TY_ASSIGN_OR_RETURN(target, dnn::OpenTarget::ForDescription(json));
  }
  if (options.describe.empty()) {
    return PrintTable(std::move(target), options);
  }
  TY_ASSIGN_OR_RETURN(const std::string json, dnn::DescribeDevice(target->get().handle));
  return WriteFileAtomically(options.describe, json + "\n");
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Which graphs cuDNN has plans for, as a table in Markdown.", "trainyard-probe");
  CLI::Option* describe =
      app.add_option("--describe", options.describe, "Write the description of this GPU (JSON)");
  app.add_option("--device-json", options.device_json,
                 "Plan for the GPU that this file describes; needs none, and gives no times")
      ->excludes(describe);
  app.add_option("--candidates", options.candidates, "Plans that are built of each graph")
      ->check(CLI::Range(1, 256));
  app.add_option("--workspace-mib", options.workspace_mib, "Most that a plan may take")
      ->check(CLI::Range(0, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(options);
  if (!status.ok()) {
    std::fprintf(stderr, "trainyard-probe: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard::engine::cuda::probe

int main(int argc, char** argv) {
  return trainyard::RunMain("trainyard-probe", trainyard::engine::cuda::probe::Main, argc, argv);
}
