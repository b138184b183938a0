// Repeats the recorded evaluation in the same parts and batches, because the sums depend on these
// to the last bit.
#include "worker/trainer/report/verify_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/manifest.h"
#include "worker/data/open_dataset.h"
#include "worker/engine/make_backend.h"
#include "worker/trainer/plan/data_setup.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/run/evaluation.h"
#include "worker/trainer/run/state_file.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::trainer {
namespace {

// One thing that is compared. Numbers are texts, from which they can be read back to the bit.
struct Row {
  std::string what;
  std::string recorded;
  std::string recomputed;
  bool is_right = false;
};

struct Comparison {
  int64_t step = 0;
  std::vector<Row> rows;
  std::string note;  // why the evaluation was not made

  void Add(std::string what, std::string recorded, std::string recomputed) {
    const bool is_right = recorded == recomputed;
    rows.push_back({std::move(what), std::move(recorded), std::move(recomputed), is_right});
  }
  bool is_right() const {
    return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.is_right; });
  }
};

// A statistical job on a GPU may be evaluated with kernels that sum in another order. Its numbers
// come back up to this share of 1 plus the number; all others come back to the bit.
constexpr double kRounding = 1e-3;

double ToleranceOf(const v1::JobSpec& spec, const RecordedEvaluation& recorded) {
  return recorded.backend == kCudaBackend && !IsBitwise(spec) ? kRounding : 0;
}

// Returns the shortest text that reads back to the bit.
std::string NumberText(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

// Compares the hash of every file that MANIFEST lists, and adds a row for each file that it does
// not.
absl::Status CompareFiles(const std::string& folder, Comparison& comparison) {
  if (!FileExists(folder)) return error::CheckpointNotFound(folder);
  const std::string manifest_path = JoinPath(folder, kManifestName);
  const auto manifest = checkpoint::ParseManifest(manifest_path);
  if (absl::IsNotFound(manifest.status())) {
    return error::CorruptFile(manifest_path, "it is missing, so this is no complete checkpoint");
  }
  TY_RETURN_IF_ERROR(manifest.status());
  comparison.step = manifest->step;
  for (const checkpoint::ManifestEntry& entry : manifest->files) {
    const absl::StatusOr<std::string> hash = FileHash(JoinPath(folder, entry.name));
    if (!hash.ok() && !absl::IsNotFound(hash.status())) return hash.status();
    comparison.Add(entry.name, entry.hash, hash.ok() ? *hash : "missing");
  }
  TY_ASSIGN_OR_RETURN(std::vector<std::string> names, ListTree(folder, 2 * kCheckpointFilesMax));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const bool is_listed = std::any_of(manifest->files.begin(), manifest->files.end(),
                                       [&name](const auto& entry) { return entry.name == name; });
    if (!is_listed && name != kManifestName) {
      comparison.Add(name, "not in MANIFEST", "present");
    }
  }
  return absl::OkStatus();
}

// Both splits are needed: samples of the test split are normalised with the mean and the deviation
// of the training split.
struct Data {
  LoadedData train;
  std::unique_ptr<data::Dataset> test;
};

absl::StatusOr<Data> OpenData(const v1::JobSpec& spec, const std::string& dataset_dir,
                              int threads) {
  const data::DatasetOptions options = MakeDatasetOptions(spec, dataset_dir);
  Data data;
  TY_ASSIGN_OR_RETURN(data.test,
                      data::OpenDataset(spec.data().dataset(), data::Split::kTest, options));
  TY_ASSIGN_OR_RETURN(data.train, LoadTrainData(spec, options, threads));
  return data;
}

// Repeats the recorded evaluation in one process: the part of each rank as that rank made it, batch
// by batch.
class Evaluator {
 public:
  Evaluator(const std::string& folder, const v1::JobSpec& spec, const RecordedEvaluation& recorded,
            const Data& data, Clock& clock)
      : folder_(folder), spec_(spec), recorded_(recorded), data_(data), clock_(clock) {}

  absl::StatusOr<RecordedEvaluation> Run() {
    std::vector<EvaluationSums> parts, averaged;
    for (int rank = 0; rank < recorded_.ranks; ++rank) {
      TY_RETURN_IF_ERROR(Prepare(rank));
      TY_ASSIGN_OR_RETURN(parts.emplace_back(), Part(rank));
      if (spec_.optimizer().ema_decay() <= 0) continue;
      TY_RETURN_IF_ERROR(model_.executable->ExchangeAverages());
      TY_ASSIGN_OR_RETURN(averaged.emplace_back(), Part(rank));
      TY_RETURN_IF_ERROR(model_.executable->ExchangeAverages());
    }
    RecordedEvaluation made = recorded_;
    made.metrics.clear();
    TY_RETURN_IF_ERROR(Add(parts, "test.", made));
    if (!averaged.empty()) TY_RETURN_IF_ERROR(Add(averaged, "test.ema_", made));
    return made;
  }

 private:
  // Ranks that evaluate as many rows at once do the same, so that the model need not change.
  absl::Status Prepare(int rank) {
    TY_ASSIGN_OR_RETURN(CompiledModel model, CompileModel(spec_, {.backend = recorded_.backend,
                                                                  .rank = rank,
                                                                  .world_size = recorded_.ranks,
                                                                  .threads = recorded_.threads}));
    if (model_.executable != nullptr && model.evaluation_rows == model_.evaluation_rows)
      return absl::OkStatus();
    model_ = std::move(model);
    return RestoreState(folder_, *model_.executable).status();
  }

  absl::StatusOr<EvaluationSums> Part(int rank) {
    return EvaluatePart(*data_.test, data_.train.preparation, rank, recorded_.ranks,
                        model_.evaluation_rows, *model_.executable, clock_);
  }

  absl::Status Add(const std::vector<EvaluationSums>& parts, absl::string_view prefix,
                   RecordedEvaluation& made) {
    TY_ASSIGN_OR_RETURN(const EvaluationResult result, JoinParts(parts));
    made.metrics.merge(EvaluationMetrics(result, prefix, spec_.model()));
    made.samples = result.samples;
    return absl::OkStatus();
  }

  const std::string& folder_;
  const v1::JobSpec& spec_;
  const RecordedEvaluation& recorded_;
  const Data& data_;
  Clock& clock_;
  CompiledModel model_;
};

void CompareMetrics(const RecordedEvaluation& recorded, const RecordedEvaluation& made,
                    double tolerance, Comparison& comparison) {
  for (const auto& [name, value] : recorded.metrics) {
    const auto found = made.metrics.find(name);
    if (found == made.metrics.end()) {
      comparison.Add(name, NumberText(value), "absent");
      continue;
    }
    comparison.Add(name, NumberText(value), NumberText(found->second));
    Row& row = comparison.rows.back();
    if (row.is_right) continue;
    const double distance = found->second - value;
    absl::StrAppendFormat(&row.recomputed, " (%+.3g)", distance);
    row.is_right = tolerance > 0 && std::isfinite(value) &&
                   std::abs(distance) <= tolerance * (1 + std::abs(value));
  }
  comparison.Add("samples", absl::StrCat(recorded.samples), absl::StrCat(made.samples));
}

absl::Status CompareEvaluation(const VerifyOptions& options, Clock& clock, Comparison& comparison) {
  TY_ASSIGN_OR_RETURN(const StateRecord state,
                      ReadState(JoinPath(options.checkpoint_dir, "state.json")));
  if (!state.evaluation.has_value()) {
    comparison.note = "files only: state.json records no evaluation of this step";
    return absl::OkStatus();
  }
  const RecordedEvaluation& recorded = *state.evaluation;
  TY_ASSIGN_OR_RETURN(const v1::JobSpec spec, ParseSpec(state.identity.spec_json));
  const auto data = OpenData(spec, options.dataset_dir, recorded.threads);
  if (absl::IsNotFound(data.status())) {
    comparison.note = absl::StrCat("files only: data set '", spec.data().dataset(),
                                   "' is not here: ", data.status().message());
    return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(data.status());
  comparison.Add("training data", state.identity.data_digest, data->train.dataset->digest());
  comparison.Add("test data", recorded.data_digest, data->test->digest());
  if (!comparison.is_right()) {
    comparison.note = "not evaluated: the data here are not those of the training";
    return absl::OkStatus();
  }
  if (const auto backend = engine::MakeBackend(recorded.backend); !backend.ok()) {
    comparison.note = absl::StrCat("files only: ", backend.status().message());
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(const RecordedEvaluation made,
                      Evaluator(options.checkpoint_dir, spec, recorded, *data, clock).Run());
  CompareMetrics(recorded, made, ToleranceOf(spec, recorded), comparison);
  return absl::OkStatus();
}

std::string Summary(const Comparison& comparison) {
  std::vector<std::string> wrong;
  for (const Row& row : comparison.rows) {
    if (!row.is_right) wrong.push_back(row.what);
  }
  const std::string note = comparison.note.empty() ? "" : comparison.note + "\n";
  if (wrong.empty()) {
    return absl::StrCat(note, "all ", comparison.rows.size(), " are as recorded\n");
  }
  return absl::StrCat(note, wrong.size(), " of ", comparison.rows.size(),
                      " differ: ", absl::StrJoin(wrong, ", "), "\n");
}

std::string TextOf(const Comparison& comparison) {
  size_t what = 4, recorded = 8, recomputed = 10;
  for (const Row& row : comparison.rows) {
    what = std::max(what, row.what.size());
    recorded = std::max(recorded, row.recorded.size());
    recomputed = std::max(recomputed, row.recomputed.size());
  }
  std::string text = absl::StrCat("checkpoint of step ", comparison.step, "\n");
  const auto line = [&](const Row& row, const char* ok) {
    absl::StrAppendFormat(&text, "%-*s  %-*s  %-*s  %s\n", static_cast<int>(what), row.what,
                          static_cast<int>(recorded), row.recorded, static_cast<int>(recomputed),
                          row.recomputed, ok);
  };
  line({"WHAT", "RECORDED", "RECOMPUTED"}, "OK");
  for (const Row& row : comparison.rows) line(row, row.is_right ? "yes" : "NO");
  return absl::StrCat(text, Summary(comparison));
}

std::string JsonOf(const Comparison& comparison) {
  nlohmann::ordered_json json;
  json["step"] = comparison.step;
  json["ok"] = comparison.is_right();
  json["note"] = comparison.note;
  json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : comparison.rows) {
    json["rows"].push_back({{"what", row.what},
                            {"recorded", row.recorded},
                            {"recomputed", row.recomputed},
                            {"ok", row.is_right}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<VerifyReport> Verify(const VerifyOptions& options, Clock& clock) {
  Comparison comparison;
  TY_RETURN_IF_ERROR(CompareFiles(options.checkpoint_dir, comparison));
  if (comparison.is_right()) {
    TY_RETURN_IF_ERROR(CompareEvaluation(options, clock, comparison));
  } else {
    comparison.note = "not evaluated: the files are not those that were written";
  }
  return VerifyReport{
      options.format == VerifyFormat::kJson ? JsonOf(comparison) : TextOf(comparison),
      comparison.is_right()};
}

}  // namespace trainyard::trainer
