// Gives the readers of specs the names of the tree that they read.
#pragma once

#include "common/yaml/yaml_tree.h"

namespace trainyard::spec_loader {

using yaml::kDepthMax;
using yaml::kFileBytesMax;
using yaml::kNodesMax;
using yaml::Mistake;
using yaml::ParseYaml;
using yaml::Place;
using yaml::YamlDocument;
using yaml::YamlEntry;
using yaml::YamlNode;

}  // namespace trainyard::spec_loader
