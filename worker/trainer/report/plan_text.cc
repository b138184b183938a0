// Formats a planned step: tables for people, JSON for programs.
#include "worker/trainer/report/plan_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/columns.h"
#include "common/base/strings.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/report/fallback_text.h"
#include "worker/trainer/report/quantity_text.h"

namespace trainyard::trainer {
namespace {

using Rows = std::vector<std::vector<std::string>>;
using nlohmann::ordered_json;

// Returns "272,474 parameters, 64 rows a device (32 at once), 2 devices, backend cpu in f32 (auto),
// 2 threads".
std::string Headline(const PlannedStep& report) {
  std::string text =
      absl::StrCat(Counted(report.parameters, "parameter"), ", ", FormatCount(report.hosted_rows),
                   report.hosted_rows == 1 ? " row" : " rows", " a device");
  if (report.rows != report.hosted_rows) {
    absl::StrAppend(&text, " (", FormatCount(report.rows), " at once)");
  }
  absl::StrAppend(&text, ", ", Counted(report.devices, "device"), ", backend ", report.backend,
                  " in ", engine::PrecisionName(report.precision),
                  report.is_auto_precision ? " (auto)" : "", ", ",
                  Counted(report.threads, "thread"), "\n");
  return text;
}

std::string MemoryTable(const PlannedStep& report) {
  Rows rows;
  for (const auto& [name, bytes] : report.memory.categories()) {
    rows.push_back({std::string(name), FormatBytes(bytes)});
  }
  rows.push_back({"total", FormatBytes(report.memory.total())});
  std::string text = AlignColumns(rows, "lr");
  if (report.misfit.empty()) {
    absl::StrAppend(&text, "fits: a device has ", FormatBytes(report.memory_limit), "\n");
    return text;
  }
  // The message begins with the categories, which stand above.
  absl::string_view advice = report.misfit;
  advice.remove_prefix(std::min(advice.size(), advice.find("; ")));
  absl::StrAppend(&text, "does not fit: a device has ", FormatBytes(report.memory_limit),
                  absl::StrReplaceAll(advice, {{"; ", "\n  "}, {", or ", "\n  or "}}), "\n");
  return text;
}

std::string OrDash(int64_t count) {
  return count == 0 ? "-" : FormatCount(count);
}

std::vector<std::string> OpRow(const PlannedOp& op) {
  const bool is_counted = op.cost.bytes > 0;
  return {op.op,
          OrDash(op.nodes),
          OrDash(op.calls),
          op.cost.flops > 0 ? FormatQuantity(op.cost.flops) : "-",
          is_counted ? FormatBytes(static_cast<int64_t>(op.cost.bytes)) : "-",
          op.seconds > 0 ? FormatSeconds(op.seconds) : "-"};
}

std::string Change(const std::string& off, const std::string& on) {
  return off == on ? off : absl::StrCat(off, " -> ", on);
}

std::string PassTable(const PlannedStep& report) {
  Rows rows = {{"pass (off -> on)", "", "kernels", "moved", "activations"}};
  for (const PlannedPass& pass : report.passes) {
    rows.push_back(
        {pass.name, pass.is_on ? "on" : "off",
         Change(FormatCount(pass.off.kernels), FormatCount(pass.on.kernels)),
         Change(FormatBytes(static_cast<int64_t>(pass.off.bytes_moved)),
                FormatBytes(static_cast<int64_t>(pass.on.bytes_moved))),
         Change(FormatBytes(pass.off.activation_bytes), FormatBytes(pass.on.activation_bytes))});
  }
  return AlignColumns(rows, "lllll");
}

ordered_json EffectJson(const PassEffect& effect) {
  return {{"kernels", effect.kernels},
          {"bytes_moved", effect.bytes_moved},
          {"activation_bytes", effect.activation_bytes}};
}

std::string FilteredText(const MachineSpeed& machine) {
  if (machine.filtered_flops_per_second <= 0) return "";
  std::string text = absl::StrCat(
      " (3x3 convolutions: ", FormatQuantity(machine.filtered_flops_per_second), "FLOP/s");
  if (machine.wide_filtered_flops_per_second > 0) {
    absl::StrAppend(&text,
                    ", of many channels: ", FormatQuantity(machine.wide_filtered_flops_per_second),
                    "FLOP/s");
  }
  return text + ")";
}

// Says what the step takes, and on what machine. It leaves out both if no machine was measured.
Rows Speed(const PlannedStep& report, double seconds) {
  Rows rows = {{"a step of", FormatCount(report.global_batch) + " samples"}};
  if (report.machine.flops_per_second <= 0) return rows;
  rows.push_back({"takes about", absl::StrCat(FormatSeconds(seconds), ", ",
                                              FormatQuantity(report.samples_per_second()),
                                              " samples/s, without communication")});
  rows.push_back({"on a machine of",
                  absl::StrCat(FormatQuantity(report.machine.flops_per_second), "FLOP/s",
                               FilteredText(report.machine), ", ",
                               FormatBytes(static_cast<int64_t>(report.machine.bytes_per_second)),
                               "/s as measured now")});
  return rows;
}

}  // namespace

std::string MemoryText(const PlannedStep& report) {
  return absl::StrCat(Headline(report), MemoryTable(report), FallbackList(report.fallbacks));
}

std::string PlanTable(const PlannedStep& report) {
  const PlannedOp total = report.Total();
  std::string text = Headline(report);
  absl::StrAppend(&text, AlignColumns(Speed(report, total.seconds), "ll"), "\n");
  Rows rows = {{"op", "nodes", "calls", "FLOPs", "moved", "time"}};
  for (const PlannedOp& op : report.ops) rows.push_back(OpRow(op));
  rows.push_back(OpRow(total));
  absl::StrAppend(&text, AlignColumns(rows, "lrrrrr"), "\nmemory of a device\n",
                  MemoryTable(report), FallbackList(report.fallbacks), "\n", PassTable(report));
  return text;
}

std::string LayerTable(const PlannedStep& report) {
  Rows rows = {{"layer", "op", "output", "parameters", "FLOPs"}};
  double flops = 0;
  for (const PlannedLayer& layer : report.layers) {
    flops += layer.flops;
    rows.push_back({layer.name, layer.op, engine::ShapeString(layer.output),
                    OrDash(layer.parameters), layer.flops > 0 ? FormatQuantity(layer.flops) : "-"});
  }
  rows.push_back({"total", "", "", FormatCount(report.parameters), FormatQuantity(flops)});
  return AlignColumns(rows, "lllrr");
}

std::string PlanJson(const PlannedStep& report) {
  const PlannedOp total = report.Total();
  ordered_json json;
  json["name"] = report.name;
  json["backend"] = report.backend;
  json["precision"] = engine::PrecisionName(report.precision);
  json["threads"] = report.threads;
  json["devices"] = report.devices;
  json["global_batch"] = report.global_batch;
  json["rows_per_device"] = report.hosted_rows;
  json["rows"] = report.rows;
  json["parameters"] = report.parameters;
  for (const auto& [name, bytes] : report.memory.categories()) {
    json["bytes"][std::string(name)] = bytes;
  }
  json["bytes"]["total"] = report.memory.total();
  json["memory_limit_bytes"] = report.memory_limit;
  json["fits"] = report.misfit.empty();
  if (!report.misfit.empty()) json["misfit"] = report.misfit;
  json["machine"] = {
      {"flops_per_second", report.machine.flops_per_second},
      {"filtered_flops_per_second", report.machine.filtered_flops_per_second},
      {"wide_filtered_flops_per_second", report.machine.wide_filtered_flops_per_second},
      {"bytes_per_second", report.machine.bytes_per_second}};
  json["step"] = {{"flops", total.cost.flops},
                  {"bytes_moved", total.cost.bytes},
                  {"seconds", total.seconds},
                  {"samples_per_second", report.samples_per_second()}};
  json["ops"] = ordered_json::array();
  for (const PlannedOp& op : report.ops) {
    json["ops"].push_back({{"op", op.op},
                           {"nodes", op.nodes},
                           {"calls", op.calls},
                           {"flops", op.cost.flops},
                           {"bytes_moved", op.cost.bytes},
                           {"seconds", op.seconds}});
  }
  json["fallbacks"] = FallbackJson(report.fallbacks);
  json["passes"] = ordered_json::array();
  for (const PlannedPass& pass : report.passes) {
    json["passes"].push_back({{"name", pass.name},
                              {"does", pass.sentence},
                              {"on", pass.is_on},
                              {"without", EffectJson(pass.off)},
                              {"with", EffectJson(pass.on)}});
  }
  json["layers"] = ordered_json::array();
  for (const PlannedLayer& layer : report.layers) {
    json["layers"].push_back({{"name", layer.name},
                              {"op", layer.op},
                              {"output", layer.output},
                              {"parameters", layer.parameters},
                              {"flops", layer.flops}});
  }
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::trainer
