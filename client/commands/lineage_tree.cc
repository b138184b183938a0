// Makes a forest of the graph, and walks it.
#include "client/commands/lineage_tree.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/output/text.h"
#include "common/base/ids.h"

namespace trainyard::commands {
namespace {

using output::XmlEscaped;

constexpr int kNodeTitleWidth = 40;

// A job in the forest, in the order in which it is drawn.
struct LineageRow {
  const v1::LineageNode* node = nullptr;
  const v1::LineageLink* link = nullptr;  // to its parent; null at the top
  size_t parent = 0;                      // its place among the rows
  int depth = 0;
  // For each level above it, whether more jobs follow there.
  std::vector<bool> goes_on;
};

int64_t JobNumberOf(const std::string& name) {
  const auto id = ParseJobName(name);
  return id.ok() ? id->value : 0;
}

std::vector<LineageRow> LineageRowsOf(const v1::Lineage& lineage) {
  std::map<std::string, std::vector<LineageRow>> children;
  std::vector<LineageRow> tops;
  for (const v1::LineageNode& node : lineage.nodes()) {
    LineageRow row;
    row.node = &node;
    row.link = PlacingLink(node, lineage);
    (row.link == nullptr ? tops : children[row.link->parent()]).push_back(std::move(row));
  }
  std::vector<LineageRow> rows;
  // Parents are older than their children, so this ends.
  const std::function<void(LineageRow, size_t)> add = [&](LineageRow row, size_t parent) {
    row.parent = parent;
    const size_t place = rows.size();
    const std::vector<bool> above = row.goes_on;
    const int depth = row.depth;
    const std::string& name = row.node->name();
    rows.push_back(std::move(row));
    std::vector<LineageRow>& below = children[name];
    for (size_t i = 0; i < below.size(); ++i) {
      below[i].depth = depth + 1;
      below[i].goes_on = above;
      below[i].goes_on.push_back(i + 1 < below.size());
      add(std::move(below[i]), place);
    }
  };
  for (LineageRow& top : tops) add(std::move(top), 0);
  return rows;
}

std::string LineageLinkText(const v1::LineageLink& link) {
  switch (link.kind()) {
    case v1::LINEAGE_KIND_CLONE:
      return "clone";
    case v1::LINEAGE_KIND_FROM:
      return absl::StrCat("from step ", link.step());
    case v1::LINEAGE_KIND_INIT:
      return absl::StrCat("weights of step ", link.step());
    case v1::LINEAGE_KIND_VERIFICATION:
      return "verification";
    case v1::LINEAGE_KIND_SAVED_SPEC:
      return absl::StrCat("saved spec ", link.parent());
    case v1::LINEAGE_KIND_SWEEP:
      return link.parent();
    case v1::LINEAGE_KIND_IMPORT:
      return absl::StrCat("imported, was ", link.parent());
    default:
      return "";
  }
}

// Returns the result that says most: an accuracy, or a loss.
std::string NodeMetricText(const v1::LineageNode& node) {
  for (const char* name : {"test.accuracy", "test.loss", "train.loss"}) {
    const auto found = node.final_metrics().find(name);
    if (found == node.final_metrics().end()) continue;
    const bool is_part = absl::string_view(name) == "test.accuracy";
    return absl::StrCat(
        name, " ",
        is_part ? output::PercentText(found->second) : output::NumberText(found->second));
  }
  return "";
}

// Returns how the job descends, with its other parents, and what it changes.
std::string DescentText(const LineageRow& row, const LineageChanges& changes) {
  std::vector<std::string> parts;
  for (const v1::LineageLink& link : row.node->links()) {
    const bool is_placing = row.link != nullptr && link.parent() == row.link->parent();
    std::string text = LineageLinkText(link);
    if (!is_placing && !text.empty() && JobNumberOf(link.parent()) > 0 &&
        link.kind() != v1::LINEAGE_KIND_IMPORT) {
      absl::StrAppend(&text, " of ", link.parent());
    }
    if (!text.empty()) parts.push_back(std::move(text));
  }
  const auto change = changes.find(row.node->name());
  if (change != changes.end() && !change->second.empty()) parts.push_back(change->second);
  return absl::StrJoin(parts, "; ");
}

std::string NodeVerifiedText(const v1::LineageNode& node) {
  if (!node.has_verified()) return "";
  return absl::StrCat("reproduced ", node.verified().reproduced(), " of ", node.verified().runs());
}

absl::string_view StateColorOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return "#2e7d32";
    case v1::JOB_STATE_FAILED:
      return "#c62828";
    case v1::JOB_STATE_CANCELLED:
    case v1::JOB_STATE_UNSPECIFIED:
      return "#757575";
    default:
      return "#1565c0";
  }
}

// The measures of the picture, in its units.
constexpr int kBoxWidth = 230;
constexpr int kBoxHeight = 58;
constexpr int kColumnWidth = 400;
constexpr int kRowHeight = 78;
constexpr int kMargin = 16;

}  // namespace

const v1::LineageLink* PlacingLink(const v1::LineageNode& node, const v1::Lineage& lineage) {
  for (const v1::LineageKind kind : {v1::LINEAGE_KIND_FROM, v1::LINEAGE_KIND_INIT,
                                     v1::LINEAGE_KIND_VERIFICATION, v1::LINEAGE_KIND_CLONE}) {
    for (const v1::LineageLink& link : node.links()) {
      if (link.kind() != kind || JobNumberOf(link.parent()) >= JobNumberOf(node.name())) continue;
      const bool is_there =
          std::any_of(lineage.nodes().begin(), lineage.nodes().end(),
                      [&](const auto& other) { return other.name() == link.parent(); });
      if (is_there) return &link;
    }
  }
  return nullptr;
}

std::string LineageTree(const v1::Lineage& lineage, const std::string& asked,
                        const LineageChanges& changes, const output::Terminal& terminal) {
  const bool unicode = terminal.unicode;
  std::string out;
  for (const LineageRow& row : LineageRowsOf(lineage)) {
    for (size_t i = 0; i < row.goes_on.size(); ++i) {
      const bool is_own = i + 1 == row.goes_on.size();
      const bool goes_on = row.goes_on[i];
      if (is_own) {
        out += goes_on ? (unicode ? "├─ " : "|- ") : (unicode ? "└─ " : "`- ");
      } else {
        out += goes_on ? (unicode ? "│  " : "|  ") : "   ";
      }
    }
    const v1::LineageNode& node = *row.node;
    std::vector<std::string> parts;
    std::string name = absl::StrCat(node.name(), node.title().empty() ? "" : "  ",
                                    output::Shortened(node.title(), kNodeTitleWidth));
    parts.push_back(node.name() == asked ? terminal.Style("1", name) + " *" : name);
    parts.push_back(
        node.state() == v1::JOB_STATE_UNSPECIFIED
            ? "deleted"
            : terminal.Style(output::StateStyle(node.state()), output::StateText(node.state())));
    for (std::string& text :
         std::vector<std::string>{node.user(), NodeMetricText(node), NodeVerifiedText(node)}) {
      if (!text.empty()) parts.push_back(std::move(text));
    }
    const std::string descent = DescentText(row, changes);
    if (!descent.empty()) parts.push_back(absl::StrCat("(", descent, ")"));
    absl::StrAppend(&out, absl::StrJoin(parts, "  "), "\n");
  }
  return out;
}

std::string LineageSvg(const v1::Lineage& lineage, const std::string& asked,
                       const LineageChanges& changes) {
  const std::vector<LineageRow> rows = LineageRowsOf(lineage);
  int depth = 0;
  for (const LineageRow& row : rows) depth = std::max(depth, row.depth);
  const int width = 2 * kMargin + depth * kColumnWidth + kBoxWidth;
  const int height = 2 * kMargin + static_cast<int>(rows.size()) * kRowHeight;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height, width, height);
  const auto left_of = [](const LineageRow& row) { return kMargin + row.depth * kColumnWidth; };
  const auto top_of = [](size_t place) { return kMargin + static_cast<int>(place) * kRowHeight; };
  for (size_t i = 0; i < rows.size(); ++i) {
    const LineageRow& row = rows[i];
    const int left = left_of(row);
    const int middle = top_of(i) + kBoxHeight / 2;
    const std::string descent = DescentText(row, changes);
    if (row.link != nullptr) {
      const int from_x = left_of(rows[row.parent]) + kBoxWidth;
      const int from_y = top_of(row.parent) + kBoxHeight / 2;
      const int bend = from_x + 24;
      absl::StrAppendFormat(&svg,
                            "<path d=\"M%d %d C%d %d %d %d %d %d L%d %d\" fill=\"none\" "
                            "stroke=\"#9e9e9e\" stroke-width=\"1.5\"/>\n",
                            from_x, from_y, bend, from_y, from_x, middle, bend + 8, middle, left,
                            middle);
      absl::StrAppendFormat(&svg,
                            "<text x=\"%d\" y=\"%d\" fill=\"#616161\" font-size=\"10\">%s"
                            "</text>\n",
                            bend + 12, middle - 5, XmlEscaped(output::Shortened(descent, 26)));
    }
    const v1::LineageNode& node = *row.node;
    const bool is_asked = node.name() == asked;
    absl::StrAppendFormat(&svg,
                          "<g><title>%s</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                          "rx=\"6\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%s\"/>\n",
                          XmlEscaped(absl::StrCat(node.name(), " ", node.title(), ": ", descent)),
                          left, top_of(i), kBoxWidth, kBoxHeight, is_asked ? "#e3f2fd" : "#fafafa",
                          StateColorOf(node.state()), is_asked ? "2.5" : "1");
    const auto line = [&](int number, absl::string_view color, absl::string_view weight,
                          absl::string_view text) {
      absl::StrAppendFormat(
          &svg, "<text x=\"%d\" y=\"%d\" fill=\"%s\" font-weight=\"%s\">%s</text>\n", left + 10,
          top_of(i) + 18 * number, color, weight, XmlEscaped(output::Shortened(text, 34)));
    };
    line(1, "#212121", "bold",
         absl::StrCat(output::ShortName(node.name()), node.title().empty() ? "" : "  ",
                      node.title()));
    line(2, StateColorOf(node.state()), "normal",
         absl::StrCat(node.state() == v1::JOB_STATE_UNSPECIFIED ? "deleted"
                                                                : output::StateText(node.state()),
                      node.user().empty() ? "" : "  ", node.user()));
    const std::string verified = NodeVerifiedText(node);
    line(3, "#424242", "normal",
         absl::StrCat(NodeMetricText(node), verified.empty() ? "" : "  ", verified));
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace trainyard::commands
