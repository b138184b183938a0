// Estimates the work of each call, and compares it with measured times.
#include "tests/bench/gpu/step_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/graph/cost.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::bench {
namespace {

constexpr auto kFloatBytes = static_cast<double>(sizeof(float));

double StoredBytes(Precision precision) {
  return precision == Precision::kBf16 || precision == Precision::kF16 ? 2 : kFloatBytes;
}

// NodeCost counts f32 everywhere. Values in the step's own type take fewer bytes.
double NodeBytes(const Graph& graph, const Node& node, int64_t rows, double stored_bytes) {
  const double bytes = NodeCost(graph, node, rows).bytes;
  if (node.op == OpKind::kConcat) return bytes * stored_bytes / kFloatBytes;
  if (bytes == 0) return 0;
  double saved = 0;
  for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      if (id == kNoValue) continue;
      const Value& value = graph.value(id);
      const bool is_stored = value.element == Element::kReal && value.role != Role::kLabels &&
                             value.role != Role::kParameterGradient && value.role != Role::kBuffer;
      saved +=
          is_stored ? static_cast<double>(value.Elements(rows)) * (kFloatBytes - stored_bytes) : 0;
    }
  }
  return bytes - saved;
}

// Every parameter and slot is read and written, the gradient is read and cleared, and a copy in the
// step's own type is written.
double UpdateBytes(const Graph& model, const OptimizerSpec& optimizer, double stored_bytes) {
  double elements = 0;
  for (const Value& value : model.values) {
    elements += value.role == Role::kParameter ? static_cast<double>(value.Elements(1)) : 0;
  }
  const auto slots = static_cast<double>(SlotNames(optimizer).size());
  return elements * (2 * kFloatBytes * (2 + slots) + stored_bytes);
}

double RooflineSeconds(const Part& part, Precision precision, const Rates* rates) {
  if (rates == nullptr) return 0;
  return std::max(part.flops / rates->flops(precision), part.bytes / rates->bytes_per_second());
}

void AddTo(Part& sum, const Part& part) {
  sum.calls += part.calls;
  sum.seconds += part.seconds;
  sum.flops += part.flops;
  sum.bytes += part.bytes;
  sum.roofline_seconds += part.roofline_seconds;
}

// The op of "conv1 conv2d+relu" is "conv2d"; that of "update" is "update".
std::string OpOf(const std::string& call) {
  const size_t space = call.rfind(' ');
  const std::string op = space == std::string::npos ? call : call.substr(space + 1);
  return op.substr(0, op.find('+'));
}

void SortBySeconds(std::vector<Part>& parts) {
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.seconds, a.roofline_seconds) > std::pair(b.seconds, b.roofline_seconds);
  });
}

nlohmann::json ToJson(const Part& part) {
  return {{"name", part.name},       {"calls", part.calls},
          {"seconds", part.seconds}, {"flops", part.flops},
          {"bytes", part.bytes},     {"roofline_seconds", part.roofline_seconds}};
}

std::string Line(const Part& part, double all_seconds) {
  const bool is_timed = part.seconds > 0;
  std::string line =
      absl::StrFormat("| %s | %d | %.1f | ", part.name, part.calls, part.seconds * 1e6);
  absl::StrAppend(
      &line,
      is_timed
          ? absl::StrFormat("%.1f %% | %.0f | %.1f | ", 100 * part.seconds / all_seconds,
                            part.bytes / part.seconds * 1e-9, part.flops / part.seconds * 1e-12)
          : "- | - | - | ",
      absl::StrFormat("%.1f | ", part.roofline_seconds * 1e6),
      is_timed && part.roofline_seconds > 0
          ? absl::StrFormat("%.0f %% |\n", 100 * part.roofline_seconds / part.seconds)
          : "- |\n");
  return line;
}

std::string Table(absl::string_view title, absl::Span<const Part> parts, double all_seconds) {
  std::string text =
      absl::StrCat("| ", title, " | calls | us | share | GB/s | TFLOP/s | roofline us | of it |\n",
                   "|---|---|---|---|---|---|---|---|\n");
  for (const Part& part : parts) absl::StrAppend(&text, Line(part, all_seconds));
  return text;
}

}  // namespace

std::vector<Part> StepWork(const Graph& model, const OptimizerSpec& optimizer, Precision precision,
                           int64_t rows, const Rates* rates) {
  const double stored_bytes = StoredBytes(precision);
  const Graph step = BuildTrainingStep(model, {}).graph;
  std::vector<Part> work;
  const auto add = [&](Part part) {
    part.roofline_seconds = RooflineSeconds(part, precision, rates);
    work.push_back(std::move(part));
  };
  // The host's floats are read once, and written once in the form that the step needs.
  const auto inputs = static_cast<double>(step.value(step.input).Elements(rows));
  add({.name = "input", .bytes = inputs * (kFloatBytes + stored_bytes)});
  for (const Node& node : step.nodes) {
    add({.name = absl::StrCat(node.name, " ", OpName(node.op), node.relu ? "+relu" : ""),
         .flops = NodeCost(step, node, rows).flops,
         .bytes = NodeBytes(step, node, rows, stored_bytes)});
  }
  add({.name = kUpdateCall, .bytes = UpdateBytes(model, optimizer, stored_bytes)});
  return work;
}

StepReport MakeReport(const std::vector<Part>& work, const std::vector<cuda::CallTime>& times) {
  // Several calls may do the work of one node, or of several nodes with one name.
  std::map<std::string, Part> by_name;
  for (const Part& part : work) {
    AddTo(by_name[part.name], part);
  }
  for (const cuda::CallTime& time : times) {
    Part& part = by_name[time.name];
    ++part.calls;
    part.seconds += time.seconds;
  }
  StepReport report;
  std::map<std::string, Part> by_op;
  for (auto& [name, part] : by_name) {
    part.name = name;
    AddTo(by_op[OpOf(name)], part);
    AddTo(report.total, part);
    report.calls.push_back(part);
  }
  for (auto& [op, part] : by_op) {
    part.name = op;
    report.ops.push_back(part);
  }
  report.total.name = "all";
  SortBySeconds(report.calls);
  SortBySeconds(report.ops);
  return report;
}

nlohmann::json ToJson(const StepReport& report) {
  nlohmann::json calls = nlohmann::json::array(), ops = nlohmann::json::array();
  for (const Part& part : report.calls) calls.push_back(ToJson(part));
  for (const Part& part : report.ops) ops.push_back(ToJson(part));
  return {{"calls", calls}, {"ops", ops}, {"total", ToJson(report.total)}};
}

std::string RenderReport(const StepReport& report, size_t calls_max) {
  std::vector<Part> ops = report.ops;
  ops.push_back(report.total);
  const absl::Span<const Part> calls =
      absl::MakeConstSpan(report.calls).first(std::min(calls_max, report.calls.size()));
  return absl::StrCat(Table("op", ops, report.total.seconds), "\n",
                      Table("call", calls, report.total.seconds));
}

}  // namespace trainyard::engine::bench
