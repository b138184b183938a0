// Draws the relatives of a job: as a tree of text, and as a picture.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "client/output/terminal.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// The words that say what a job has other than its parent, by the name of the job.
using LineageChanges = std::map<std::string, std::string>;

// Returns the link that places a job below another in the tree, or null for one that stands at the
// top. A job that descends from several stands below the one whose training it continues.
const v1::LineageLink* PlacingLink(const v1::LineageNode& node, const v1::Lineage& lineage);

// Returns a line for each job, with its descendants below it. `asked` is drawn brighter.
std::string LineageTree(const v1::Lineage& lineage, const std::string& asked,
                        const LineageChanges& changes, const output::Terminal& terminal);

// Returns a picture in SVG, with the oldest jobs at the left.
std::string LineageSvg(const v1::Lineage& lineage, const std::string& asked,
                       const LineageChanges& changes);

}  // namespace trainyard::commands
