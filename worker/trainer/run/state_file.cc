// Writes and reads state.json. Numbers must read back to the bit.
#include "worker/trainer/run/state_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace trainyard::trainer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// The limit is large enough for a spec and some numbers.
constexpr int64_t kMaxStateBytes = int64_t{16} << 20;
constexpr char kBitwise[] = "bitwise";

// Numbers that JSON cannot express are texts, as in metrics.jsonl. The others read back to the bit.
ordered_json Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

bool TakeNumber(const json& field, double& value) {
  if (field.is_number()) {
    value = field.get<double>();
    return true;
  }
  if (field == "nan") value = std::numeric_limits<double>::quiet_NaN();
  if (field == "inf") value = std::numeric_limits<double>::infinity();
  if (field == "-inf") value = -std::numeric_limits<double>::infinity();
  return field == "nan" || field == "inf" || field == "-inf";
}

// These leave the target as it is if the field is absent or of another type.
template <typename T>
void TakeInteger(const json& object, const char* key, T& value) {
  const auto field = object.find(key);
  if (field != object.end() && field->is_number_integer()) value = field->get<T>();
}
void TakeText(const json& object, const char* key, std::string& value) {
  const auto field = object.find(key);
  if (field != object.end() && field->is_string()) value = field->get<std::string>();
}
// Reads the whole evaluation or nothing.
template <typename T>
void TakeList(const json& object, const char* key, std::vector<T>& values) {
  const auto field = object.find(key);
  if (field == object.end() || !field->is_array()) return;
  std::vector<T> list;
  for (const json& element : *field) {
    const bool fits = std::is_same_v<T, int> ? element.is_number_integer() : element.is_string();
    if (!fits) return;
    list.push_back(element.get<T>());
  }
  values = std::move(list);
}

ordered_json EncodeEvaluation(const RecordedEvaluation& evaluation) {
  ordered_json object;
  for (const auto& [name, value] : evaluation.metrics) object["metrics"][name] = Number(value);
  object["samples"] = evaluation.samples;
  object["skipped"] = evaluation.skipped;
  object["data_digest"] = evaluation.data_digest;
  object["backend"] = evaluation.backend;
  object["ranks"] = evaluation.ranks;
  object["threads"] = evaluation.threads;
  return object;
}

std::optional<RecordedEvaluation> TakeEvaluation(const json& object) {
  const auto metrics = object.is_object() ? object.find("metrics") : object.end();
  // An evaluation without a result is none.
  if (metrics == object.end() || !metrics->is_object() || metrics->empty()) return std::nullopt;
  RecordedEvaluation evaluation;
  for (const auto& [name, value] : metrics->items()) {
    if (!TakeNumber(value, evaluation.metrics[name])) return std::nullopt;
  }
  TakeInteger(object, "samples", evaluation.samples);
  TakeInteger(object, "skipped", evaluation.skipped);
  TakeText(object, "data_digest", evaluation.data_digest);
  TakeText(object, "backend", evaluation.backend);
  TakeInteger(object, "ranks", evaluation.ranks);
  TakeInteger(object, "threads", evaluation.threads);
  if (evaluation.ranks < 1 || evaluation.threads < 1) return std::nullopt;
  return evaluation;
}

}  // namespace

bool SameValue(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

bool operator==(const RecordedEvaluation& a, const RecordedEvaluation& b) {
  const auto facts = [](const RecordedEvaluation& one) {
    return std::tie(one.samples, one.skipped, one.data_digest, one.backend, one.ranks, one.threads);
  };
  return facts(a) == facts(b) && std::equal(a.metrics.begin(), a.metrics.end(), b.metrics.begin(),
                                            b.metrics.end(), [](const auto& x, const auto& y) {
                                              return x.first == y.first &&
                                                     SameValue(x.second, y.second);
                                            });
}

std::string EncodeState(const StateRecord& state) {
  const RunIdentity& identity = state.identity;
  ordered_json object;
  object["format"] = 1;
  object["step"] = state.step;
  object["epoch"] = state.epoch;
  object["seed"] = identity.seed;
  object["replicas"] = identity.replicas;
  object["global_batch"] = identity.global_batch;
  object["reproducibility"] = identity.is_bitwise ? kBitwise : "statistical";
  object["hosting"] = identity.hosting;
  object["device_types"] = identity.device_types;
  object["data_digest"] = identity.data_digest;
  object["model_digest"] = identity.model_digest;
  if (!identity.init_digest.empty()) object["init_digest"] = identity.init_digest;
  object["version"] = state.version;
  if (state.evaluation.has_value()) object["evaluation"] = EncodeEvaluation(*state.evaluation);
  // Its keys are put in order, since the order in the assignment may change between attempts.
  const json spec = json::parse(identity.spec_json, nullptr, /*allow_exceptions=*/false);
  if (spec.is_object()) object["spec"] = spec;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<StateRecord> ReadState(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxStateBytes));
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_unsigned()) {
    return error::CorruptFile(path, "expected a JSON object with a number 'step'");
  }
  StateRecord state;
  state.step = object["step"].get<int64_t>();
  TakeInteger(object, "epoch", state.epoch);
  TakeInteger(object, "seed", state.identity.seed);
  TakeInteger(object, "replicas", state.identity.replicas);
  TakeInteger(object, "global_batch", state.identity.global_batch);
  std::string reproducibility;
  TakeText(object, "reproducibility", reproducibility);
  state.identity.is_bitwise = reproducibility == kBitwise;
  TakeList(object, "hosting", state.identity.hosting);
  TakeList(object, "device_types", state.identity.device_types);
  TakeText(object, "data_digest", state.identity.data_digest);
  TakeText(object, "model_digest", state.identity.model_digest);
  TakeText(object, "init_digest", state.identity.init_digest);
  TakeText(object, "version", state.version);
  if (object.contains("evaluation")) state.evaluation = TakeEvaluation(object["evaluation"]);
  if (object.contains("spec") && object["spec"].is_object()) {
    state.identity.spec_json = object["spec"].dump();
  }
  return state;
}

}  // namespace trainyard::trainer
