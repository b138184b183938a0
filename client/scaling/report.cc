// Compares the measured runs with each other, with the prediction and with published figures.
#include "client/scaling/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/strings.h"

namespace trainyard::scaling {
namespace {

using Json = nlohmann::ordered_json;
using output::Table;

std::string TimesText(double speed_up) {
  return absl::StrFormat("%.2fx", speed_up);
}

const Published::Point* PublishedAt(const Report& report, int devices) {
  const Published* published = PublishedFor(report.model);
  if (published == nullptr) return nullptr;
  for (const Published::Point& point : published->points) {
    if (point.devices == devices) return &point;
  }
  return nullptr;
}

std::string AgreementText(const Report& report) {
  if (report.is_bitwise) {
    return report.AllAgree() ? "the weights are the same bytes on all of them"
                             : "the weights DIFFER, and the spec asks for bitwise";
  }
  return absl::StrCat("final losses ", report.AllAgree() ? "agree" : "DO NOT agree", " within ",
                      output::PercentText(report.tolerance));
}

// A prediction that misses what was measured by more than this says nothing about more devices.
constexpr double kPredictionErrorMax = 0.1;
// The steps of a run take equal times on a machine that does nothing else, within this share.
constexpr double kStepSpreadMax = 0.25;

// Returns the largest error of a prediction that was measured too, as a fraction.
double LargestError(const Report& report) {
  double largest = 0;
  for (const Measurement& point : report.measured) {
    const auto predicted = report.PredictedSpeed(point.devices);
    if (!predicted.has_value()) continue;
    largest = std::max(largest, std::abs(*predicted / report.SamplesPerSecond(point) - 1));
  }
  return largest;
}

std::string PredictionText(const Report& report) {
  const auto costs = report.costs();
  if (!costs.has_value()) return "no prediction: nothing was measured on 1 device\n";
  std::string text = absl::StrCat(
      "predicted from ", output::SecondsText(costs->compute_seconds), " of computation and ",
      output::SecondsText(costs->fixed_seconds), " beside it on 1 device, ",
      costs->link_bytes_per_s > 0
          ? absl::StrCat("gradients of ", FormatBytes(std::llround(costs->gradient_bytes)), " at ",
                         FormatBytes(std::llround(costs->link_bytes_per_s)), "/s")
          : "communication not measured and so counted as free",
      "; for equal devices with processors of their own\n");
  const double one = *report.PredictedSpeed(1);
  for (const int devices : report.Beyond()) {
    const auto speed = report.PredictedSpeed(devices);
    if (!speed.has_value()) continue;
    absl::StrAppend(
        &text, "  ", devices, " devices would give ", costs->link_bytes_per_s > 0 ? "" : "at most ",
        output::RateText(*speed), " samples/s, ", TimesText(*speed / one), ", ",
        output::PercentText(*speed / one / devices), " of the ideal",
        devices > report.replicas ? absl::StrCat(", with ", devices, " replicas") : "", "\n");
  }
  return text;
}

Json PointJson(const Report& report, const Measurement& point) {
  Json json;
  json["devices"] = point.devices;
  json["jobs"] = point.jobs;
  json["samples_per_s"] = report.SamplesPerSecond(point);
  json["samples_per_s_of_runs"] = Json::array();
  for (const double seconds : point.step_seconds_of_runs) {
    json["samples_per_s_of_runs"].push_back(static_cast<double>(report.global_batch) / seconds);
  }
  json["speed_up"] = report.SpeedUp(point);
  json["efficiency"] = report.Efficiency(point);
  json["step_seconds"] = point.step_seconds;
  json["step_spread"] = point.step_spread;
  json["compute_seconds"] = point.compute_seconds;
  json["comm_seconds"] = point.comm_seconds;
  json["exposed_seconds"] = point.exposed_seconds;
  json["comm_bytes"] = point.comm_bytes;
  const auto hidden = report.HiddenFraction(point);
  json["hidden_fraction"] = hidden.has_value() ? Json(*hidden) : Json(nullptr);
  json["final_loss"] = point.final_loss;
  json["weights"] = point.weights;
  json["agrees"] = report.Agrees(point);
  const auto predicted = report.PredictedSpeed(point.devices);
  json["predicted_samples_per_s"] = predicted.has_value() ? Json(*predicted) : Json(nullptr);
  json["prediction_error"] =
      predicted.has_value() ? Json(*predicted / report.SamplesPerSecond(point) - 1) : Json(nullptr);
  return json;
}

Json PredictionJson(const Report& report) {
  const auto costs = report.costs();
  if (!costs.has_value()) return nullptr;
  Json json;
  json["compute_seconds"] = costs->compute_seconds;
  json["fixed_seconds"] = costs->fixed_seconds;
  json["gradient_bytes"] = costs->gradient_bytes;
  json["link_bytes_per_s"] = costs->link_bytes_per_s;
  json["wait_share"] = costs->wait_share;
  json["beyond"] = Json::array();
  const double one = *report.PredictedSpeed(1);
  for (const int devices : report.Beyond()) {
    const auto speed = report.PredictedSpeed(devices);
    if (!speed.has_value()) continue;
    json["beyond"].push_back({{"devices", devices},
                              {"samples_per_s", *speed},
                              {"speed_up", *speed / one},
                              {"efficiency", *speed / one / devices}});
  }
  return json;
}

}  // namespace

double Report::SamplesPerSecond(const Measurement& point) const {
  return static_cast<double>(global_batch) / point.step_seconds;
}

double Report::SpeedUp(const Measurement& point) const {
  const Measurement& base = measured.front();
  return base.devices * SamplesPerSecond(point) / SamplesPerSecond(base);
}

double Report::Efficiency(const Measurement& point) const {
  return SpeedUp(point) / point.devices;
}

std::optional<double> Report::HiddenFraction(const Measurement& point) const {
  if (point.comm_seconds <= 0) return std::nullopt;
  return std::clamp(1 - point.exposed_seconds / point.comm_seconds, 0.0, 1.0);
}

bool Report::Agrees(const Measurement& point) const {
  return Agree(measured.front(), point, is_bitwise, tolerance);
}

bool Report::AllAgree() const {
  return std::all_of(measured.begin(), measured.end(),
                     [this](const Measurement& point) { return Agrees(point); });
}

std::optional<double> Report::PredictedSpeed(int devices) const {
  auto known = costs();
  if (!known.has_value()) return std::nullopt;
  known->replicas = std::max(known->replicas, devices);
  if (known->replicas > global_batch) return std::nullopt;
  const auto prediction = Predict(*known, devices);
  if (!prediction.has_value()) return std::nullopt;
  return static_cast<double>(global_batch) / prediction->step_seconds;
}

std::vector<int> Report::Beyond() const {
  std::vector<int> all;
  const int most = measured.back().devices;
  for (int devices = 1; all.size() < 3 && devices <= 4096; devices *= 2) {
    if (devices > most) all.push_back(devices);
  }
  return all;
}

std::vector<std::string> Report::Warnings() const {
  std::vector<std::string> warnings;
  for (const Measurement& point : measured) {
    if (point.step_spread <= kStepSpreadMax) continue;
    warnings.push_back(absl::StrCat(
        "the times of steps on ", point.devices, point.devices == 1 ? " device" : " devices",
        " differ by ", output::PercentText(point.step_spread), ": the machine was busy"));
  }
  const double error = LargestError(*this);
  if (error > kPredictionErrorMax) {
    warnings.push_back(absl::StrCat("the prediction is wrong by ", output::PercentText(error),
                                    " where it was measured: do not trust it"));
  }
  return warnings;
}

std::string ReportText(const Report& report) {
  using Align = Table::Align;
  Table table({{"DEVICES", Align::kRight},
               {"SAMPLES/S", Align::kRight},
               {"SPEED-UP", Align::kRight},
               {"EFFICIENCY", Align::kRight},
               {"HIDDEN", Align::kRight},
               {"PREDICTED", Align::kRight},
               {"ERROR", Align::kRight},
               {"AGREES", Align::kLeft},
               {"PUBLISHED", Align::kRight}});
  for (const Measurement& point : report.measured) {
    const double speed = report.SamplesPerSecond(point);
    const auto hidden = report.HiddenFraction(point);
    const auto predicted = report.PredictedSpeed(point.devices);
    const Published::Point* published = PublishedAt(report, point.devices);
    table.AddRow(
        {absl::StrCat(point.devices), output::RateText(speed), TimesText(report.SpeedUp(point)),
         output::PercentText(report.Efficiency(point)),
         hidden.has_value() ? output::PercentText(*hidden) : "",
         predicted.has_value() ? output::RateText(*predicted) : "",
         predicted.has_value() ? absl::StrFormat("%+.1f%%", (*predicted / speed - 1) * 100) : "",
         report.Agrees(point) ? "yes" : "NO",
         published != nullptr ? TimesText(published->speed_up) : ""});
  }
  const Published* published = PublishedFor(report.model);
  std::string warnings;
  for (const std::string& warning : report.Warnings()) {
    absl::StrAppend(&warnings, "warning: ", warning, "\n");
  }
  if (!warnings.empty()) {
    warnings += "devices that share processors, and other programs, make such differences\n";
  }
  return absl::StrCat(
      report.name, ": ", report.model, ", batch ", report.global_batch, " of ", report.replicas,
      report.replicas == 1 ? " replica, " : " replicas, ", report.steps, " steps\n", table.Render(),
      AgreementText(report), "\n", PredictionText(report), warnings,
      published != nullptr ? absl::StrCat("published: ", published->what, "\n") : "");
}

std::string ReportJson(const Report& report) {
  Json json;
  json["format"] = 1;
  json["name"] = report.name;
  json["source"] = report.source;
  json["model"] = report.model;
  json["global_batch"] = report.global_batch;
  json["replicas"] = report.replicas;
  json["steps"] = report.steps;
  json["runs"] = report.runs;
  json["reproducibility"] = report.is_bitwise ? "bitwise" : "statistical";
  json["tolerance"] = report.is_bitwise ? 0 : report.tolerance;
  json["agree"] = report.AllAgree();
  json["measured"] = Json::array();
  for (const Measurement& point : report.measured) {
    json["measured"].push_back(PointJson(report, point));
  }
  json["prediction"] = PredictionJson(report);
  json["warnings"] = report.Warnings();
  json["published"] = nullptr;
  if (const Published* published = PublishedFor(report.model)) {
    json["published"] = {{"what", published->what}, {"points", Json::array()}};
    for (const Published::Point& point : published->points) {
      json["published"]["points"].push_back(
          {{"devices", point.devices}, {"speed_up", point.speed_up}});
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::scaling
