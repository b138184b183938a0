// Fits the state of a training into one line. The least important parts are left out first.
#include "client/output/progress.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/strings.h"

namespace trainyard::output {
namespace {

double Fraction(const ProgressView& view) {
  if (view.total_steps <= 0) return 0;
  return std::clamp(static_cast<double>(view.step) / static_cast<double>(view.total_steps), 0.0,
                    1.0);
}

std::string EpochText(const ProgressView& view) {
  if (view.epochs <= 0) return "";
  return absl::StrCat("epoch ", std::min(view.epoch + 1, view.epochs), "/", view.epochs);
}

// Tenths of a second would only flicker.
std::string EtaText(absl::Duration eta) {
  return "eta " + (eta < absl::Minutes(1) ? absl::StrCat(absl::ToInt64Seconds(eta), "s")
                                          : DurationText(eta));
}

// The speed, the time left and the values, the most important first.
std::vector<std::string> Facts(const ProgressView& view) {
  std::vector<std::string> facts;
  if (view.samples_per_s > 0) facts.push_back(RateText(view.samples_per_s) + " samples/s");
  if (view.eta.has_value()) facts.push_back(EtaText(*view.eta));
  if (view.loss.has_value()) facts.push_back("loss " + NumberText(*view.loss));
  if (view.accuracy.has_value()) {
    facts.push_back(absl::StrCat(view.is_test_accuracy ? "test" : "batch", " accuracy ",
                                 PercentText(*view.accuracy)));
  }
  return facts;
}

std::string Bar(double fraction, int width, bool unicode) {
  if (!unicode) {
    const auto full = static_cast<size_t>(std::lround(fraction * width));
    return absl::StrCat("[", std::string(full, '#'),
                        std::string(static_cast<size_t>(width) - full, '.'), "]");
  }
  // The bar is drawn in eighths of a character.
  constexpr const char* kPartial[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(fraction * width * 8));
  std::string bar = "▕";
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kPartial[eighths % 8];
  const int used = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  bar += std::string(static_cast<size_t>(width - used), ' ');
  return bar + "▏";
}

double Fraction(const TransferView& view) {
  if (view.total <= 0) return 0;
  return std::clamp(static_cast<double>(view.bytes) / static_cast<double>(view.total), 0.0, 1.0);
}

std::string BytesText(const TransferView& view) {
  return absl::StrCat(FormatBytes(view.bytes),
                      view.total > 0 ? absl::StrCat("/", FormatBytes(view.total)) : "");
}

std::vector<std::string> Facts(const TransferView& view) {
  std::vector<std::string> facts;
  if (view.bytes_per_s < 1) return facts;
  facts.push_back(FormatBytes(static_cast<int64_t>(view.bytes_per_s)) + "/s");
  if (view.total > view.bytes) {
    const auto rest = static_cast<double>(view.total - view.bytes);
    facts.push_back(EtaText(absl::Seconds(std::ceil(rest / view.bytes_per_s))));
  }
  return facts;
}

}  // namespace

ProgressView ViewOf(const v1::Progress& progress) {
  ProgressView view;
  view.step = progress.step();
  view.total_steps = progress.total_steps();
  view.epoch = progress.epoch();
  view.epochs = progress.epochs();
  view.samples_per_s = progress.samples_per_s();
  if (progress.has_eta()) view.eta = ToDuration(progress.eta());
  return view;
}

std::string ProgressBarLine(const ProgressView& view, const Terminal& terminal) {
  constexpr int kBarMin = 8;
  constexpr int kBarMax = 24;
  const std::string epoch = EpochText(view);
  const std::string head = epoch.empty() ? "" : epoch + " ";
  const std::string steps = absl::StrCat(" ", view.step, "/", view.total_steps);
  std::vector<std::string> facts = Facts(view);
  const auto tail = [&] {
    return facts.empty() ? std::string() : absl::StrCat("  ", absl::StrJoin(facts, "  "));
  };
  const auto room = [&] {
    return terminal.width - 1 - DisplayWidth(absl::StrCat(head, steps, tail())) - 2;
  };
  // The time left is dropped first, because the bar shows as much.
  while (room() < kBarMin && facts.size() > 1) facts.erase(facts.begin() + 1);
  if (room() < kBarMin) facts.clear();
  const int width = std::clamp(room(), 1, kBarMax);
  return absl::StrCat(head, Bar(Fraction(view), width, terminal.unicode), steps, tail());
}

std::string ProgressTextLine(const ProgressView& view) {
  std::vector<std::string> parts;
  if (const std::string epoch = EpochText(view); !epoch.empty()) parts.push_back(epoch);
  parts.push_back(absl::StrCat("step ", view.step, "/", view.total_steps));
  parts.push_back(absl::StrCat(static_cast<int>(Fraction(view) * 100), "%"));
  for (std::string& fact : Facts(view)) parts.push_back(std::move(fact));
  return absl::StrJoin(parts, "  ");
}

std::string TransferBarLine(const TransferView& view, const Terminal& terminal) {
  constexpr int kBarMin = 8;
  constexpr int kBarMax = 24;
  std::vector<std::string> tail = Facts(view);
  tail.insert(tail.begin(), " " + BytesText(view));
  std::string name = absl::StrCat(view.name, " ");
  const auto room = [&] {
    return terminal.width - 3 - DisplayWidth(absl::StrCat(name, absl::StrJoin(tail, "  ")));
  };
  if (room() < kBarMin) name.clear();
  while (room() < kBarMin && tail.size() > 1) tail.pop_back();
  return absl::StrCat(name, Bar(Fraction(view), std::clamp(room(), 1, kBarMax), terminal.unicode),
                      absl::StrJoin(tail, "  "));
}

std::string TransferTextLine(const TransferView& view) {
  std::vector<std::string> parts = {view.name, BytesText(view)};
  if (view.total > 0) parts.push_back(absl::StrCat(static_cast<int>(Fraction(view) * 100), "%"));
  for (std::string& fact : Facts(view)) parts.push_back(std::move(fact));
  return absl::StrJoin(parts, "  ");
}

}  // namespace trainyard::output
